/** GETs as the Hub needs them: those of any source, with the token where it belongs and nowhere else. */

import { Credentials } from './credentials.js';
import { parseEndpoint } from './hub-settings.js';
import { type SourceAnswer, type SourceGet, SourceHttp, type SourceHttpOptions } from './source-http.js';

export interface HubHttpOptions extends SourceHttpOptions {
  readonly endpoint: string;
  readonly token: () => Promise<string | undefined>;
}

export class HubHttp {
  readonly endpoint: URL;
  readonly credentials: Credentials;
  readonly #http: SourceHttp;

  /** Errors: EINVAL endpoint. */
  constructor(options: HubHttpOptions) {
    this.endpoint = parseEndpoint(options.endpoint);
    this.credentials = new Credentials(this.endpoint, options.token);
    this.#http = new SourceHttp(options);
  }

  /** Errors: as `SourceHttp.get`; those of the token. */
  get(request: Omit<SourceGet, 'headersFor'>): Promise<SourceAnswer> {
    return this.#http.get({ ...request, headersFor: (url) => this.credentials.headersFor(url) });
  }
}
