/**
 * Where the Hub has the bytes of one blob: asked of its resolver once, kept for every request of the transfer, asked again only when
 * the storage no longer honours it. Rate limits count these questions, not the requests for bytes.
 */

import type { TmaxError } from '../errors.js';
import type { BlobLocation, BytesRequest } from './blob-location.js';
import { TransientFailure } from './failure.js';
import { type HttpReply, headerNumber } from './http-client.js';
import { isTransient, statusError, transientStatus } from './hub-errors.js';
import type { HubHttp } from './hub-http.js';
import { endpointText } from './hub-settings.js';
import { resolveUrl } from './hub-urls.js';
import { isWebPage } from './range-reply.js';
import type { BlobAddress } from './source.js';
import type { SourceAnswer } from './source-http.js';

export class HubLocation implements BlobLocation {
  readonly #http: HubHttp;
  readonly #blob: BlobAddress;
  #asked: Promise<URL> | undefined;
  #current: URL | undefined;

  constructor(http: HubHttp, blob: BlobAddress) {
    this.#http = http;
    this.#blob = blob;
  }

  /** All who ask while the answer is on its way share it. Errors: EACCES, ENOENT, EINTR, `TransientFailure`s. */
  async url(signal: AbortSignal): Promise<URL> {
    const asked = this.#asked ?? this.#resolve(signal);
    this.#asked = asked;
    try {
      this.#current = await asked;
      return this.#current;
    } catch (error) {
      if (this.#asked === asked) this.#asked = undefined;
      throw error;
    }
  }

  get(request: BytesRequest): Promise<SourceAnswer> {
    return this.#http.get({ ...request, kind: 'storage' });
  }

  /** What a status means, and whether the URL is to blame. */
  async refusal(reply: HttpReply, asked: URL): Promise<TmaxError> {
    const { path, repository, commit } = this.#blob;
    const { status } = reply;
    const { credentials, endpoint } = this.#http;
    if (credentials.covers(asked)) {
      const hasToken = (await credentials.token()) !== undefined;
      return statusError(reply, { endpoint: endpointText(endpoint), repository, revision: commit, path, hasToken });
    }
    const message = `the storage of the Hub (${asked.host}) answers ${status} for ${path}`;
    if (isTransient(status)) return transientStatus(reply, message);
    if (status < 400) return new TransientFailure('EBADMSG', message);
    this.#discard(asked);
    const staleUrl = true;
    if (status === 401 || status === 403) {
      return new TransientFailure('EACCES', `${message}, to a fresh URL too: is this machine's clock right?`, {
        staleUrl,
      });
    }
    if (status === 404 || status === 410) return new TransientFailure('ENOENT', message, { staleUrl });
    if (status === 400) return new TransientFailure('EHOSTUNREACH', message, { staleUrl });
    return new TransientFailure('EBADMSG', message, { staleUrl });
  }

  /** This URL is of no use any more; one that was given out since is left alone. */
  #discard(url: URL): void {
    if (this.#current !== url) return;
    this.#current = undefined;
    this.#asked = undefined;
  }

  async #resolve(signal: AbortSignal): Promise<URL> {
    const { repository, commit, path } = this.#blob;
    const token = await this.#http.credentials.token();
    const { reply, url } = await this.#http.get({
      url: resolveUrl(this.#http.endpoint, repository, commit, path),
      kind: 'resolver',
      // For a server that does not redirect but begins to send: one byte of it is enough.
      headers: { range: 'bytes=0-0' },
      signal,
      follows: (next) => this.#http.credentials.covers(next),
      onReply: () => undefined,
    });
    const { status } = reply;
    if (status === 401 && (await this.#http.credentials.token()) !== token) {
      throw new TransientFailure('EACCES', 'the token was replaced while it was in use', { staleUrl: true });
    }
    // A redirect is left unfollowed only where it leaves the Hub: there the bytes are.
    if (status >= 300 && status < 400 && !this.#http.credentials.covers(url)) {
      this.#checkClaims(reply);
      return url;
    }
    if (status === 200 || status === 206) {
      if (isWebPage(reply)) {
        const message = `instead of ${path} comes a web page from ${url.host}: is there a login page between?`;
        throw new TransientFailure('EBADMSG', message);
      }
      return url;
    }
    const endpoint = endpointText(this.#http.endpoint);
    throw statusError(reply, { endpoint, repository, revision: commit, path, hasToken: token !== undefined });
  }

  /** Size and digest that the Hub states with the redirect; a mirror may leave them out. */
  #checkClaims(reply: HttpReply): void {
    const { path, sizeBytes, sha256 } = this.#blob;
    const size = headerNumber(reply, 'x-linked-size');
    const digest = /^"?([0-9a-f]{64})"?$/.exec(reply.header('x-linked-etag') ?? '')?.[1];
    if ((size ?? sizeBytes) === sizeBytes && (digest ?? sha256) === sha256) return;
    throw new TransientFailure('EBADMSG', `the Hub now states another size or sha256 for ${path} than in its listing`);
  }
}
