/**
 * A blob at the URL that a template makes of it: a web server, a mirror, a store of objects. Asked without a word before, and
 * without credentials: the Hub's token is not for it.
 */

import { TmaxError } from '../errors.js';
import type { BlobLocation, BytesRequest } from './blob-location.js';
import { AbsentBlob, TransientFailure } from './failure.js';
import type { HttpReply } from './http-client.js';
import { isTransient, transientStatus } from './hub-errors.js';
import type { BlobAddress } from './source.js';
import type { SourceAnswer, SourceHttp } from './source-http.js';
import type { UrlTemplate } from './url-template.js';

/** "Not here", and what stores of objects say in its place to those who may not list them. */
const ABSENT: ReadonlySet<number> = new Set([401, 403, 404, 410]);

export class TemplateLocation implements BlobLocation {
  readonly #http: SourceHttp;
  protected readonly name: string;
  protected readonly path: string;
  readonly #url: URL;
  readonly #headers: Readonly<Record<string, string>>;

  /** `headers`: of every request, redirects included. Errors: EINVAL a name that can't stand in a URL. */
  constructor(
    http: SourceHttp,
    name: string,
    template: UrlTemplate,
    blob: BlobAddress,
    headers: Readonly<Record<string, string>> = {},
  ) {
    this.#headers = headers;
    this.#http = http;
    this.name = name;
    this.path = blob.path;
    this.#url = template.urlOf(blob);
  }

  async url(): Promise<URL> {
    return this.#url;
  }

  get(request: BytesRequest): Promise<SourceAnswer> {
    return this.#http.get({ ...request, headers: { ...this.#headers, ...request.headers }, kind: 'storage' });
  }

  async refusal(reply: HttpReply): Promise<TmaxError> {
    const { status } = reply;
    if (ABSENT.has(status)) return new AbsentBlob(`${this.path} is not at ${this.name} (it answers ${status})`);
    const message = `${this.name} answers ${status} for ${this.path}`;
    if (isTransient(status)) return transientStatus(reply, message);
    // No range of it: what lies there is shorter.
    if (status < 400 || status === 416) return new TransientFailure('EBADMSG', message);
    return new TmaxError('EHOSTUNREACH', message);
  }
}
