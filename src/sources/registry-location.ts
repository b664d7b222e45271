/**
 * A blob of an OCI registry: at one URL, by its digest. The registry may send on to a store of objects, which is asked without what
 * the registry was.
 */

import { TmaxError } from '../errors.js';
import type { BlobLocation, BytesRequest } from './blob-location.js';
import { AbsentBlob, TransientFailure } from './failure.js';
import type { HttpReply } from './http-client.js';
import { isTransient, transientStatus } from './hub-errors.js';
import { blobUrl, type Registry } from './registry.js';
import type { RegistryLogin, RegistrySecret } from './registry-login.js';
import type { BlobAddress } from './source.js';
import type { SourceAnswer, SourceHttp } from './source-http.js';

export interface RegistryTools {
  readonly registry: Registry;
  readonly http: SourceHttp;
  /** Shared by all blobs. */
  readonly login: RegistryLogin;
}

export class RegistryLocation implements BlobLocation {
  readonly #tools: RegistryTools;
  readonly #blob: BlobAddress;
  readonly #secret: RegistrySecret;
  /** Who has answered in the end: the registry, or the storage that it sends on to. */
  readonly #answeredBy = new WeakMap<HttpReply, URL>();

  constructor(tools: RegistryTools, blob: BlobAddress, secret: RegistrySecret) {
    this.#tools = tools;
    this.#blob = blob;
    this.#secret = secret;
  }

  async url(): Promise<URL> {
    await this.#tools.login.ready(this.#secret);
    return blobUrl(this.#tools.registry, this.#blob.sha256);
  }

  async get(request: BytesRequest): Promise<SourceAnswer> {
    const { http, login } = this.#tools;
    const answer = await http.get({ ...request, kind: 'storage', headersFor: async (url) => login.headersFor(url) });
    this.#answeredBy.set(answer.reply, answer.url);
    return answer;
  }

  async refusal(reply: HttpReply, requested: URL): Promise<TmaxError> {
    const { registry, login } = this.#tools;
    const { path } = this.#blob;
    const { status } = reply;
    const asked = this.#answeredBy.get(reply) ?? requested;
    const isOwn = asked.origin === registry.origin;
    if (isOwn && status === 401) return login.refused(reply, path);
    if (isOwn && status === 403) return new TmaxError('EACCES', `${registry.shown} answers 403 for ${path}`);
    if (isOwn && (status === 404 || status === 410)) return new AbsentBlob(`${path} is not at ${registry.shown}`);
    const where = isOwn ? registry.shown : `the storage of ${registry.shown} (${asked.host})`;
    const message = `${where} answers ${status} for ${path}`;
    if (isTransient(status)) return transientStatus(reply, message);
    // The way to the storage is asked anew each time: it may have been for a short while only.
    if (!isOwn && status >= 400) return new TransientFailure('EHOSTUNREACH', message, { staleUrl: true });
    if (status < 400 || status === 416) return new TransientFailure('EBADMSG', message);
    return new TmaxError('EHOSTUNREACH', message);
  }
}
