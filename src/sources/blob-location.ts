/**
 * Where the bytes of one blob are: asked of the Hub once, kept for every request of the transfer, asked again only when
 * the storage no longer honours it. Rate limits count these questions, not the requests for bytes.
 */

import { TransientFailure } from './failure.js';
import { type HttpReply, headerNumber } from './http-client.js';
import { statusError } from './hub-errors.js';
import type { HubHttp } from './hub-http.js';
import { endpointText } from './hub-settings.js';
import { resolveUrl } from './hub-urls.js';
import type { BlobAddress } from './source.js';

export class BlobLocation {
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

  /** This URL is of no use any more; one that was given out since is left alone. */
  discard(url: URL): void {
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

export function isWebPage(reply: HttpReply): boolean {
  return /^text\/html\b/i.test(reply.header('content-type') ?? '');
}
