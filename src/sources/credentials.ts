/** The token: where it may go (the Hub's own origin, nowhere else), and what it must look like. Never in a message. */

import { TmaxError } from '../errors.js';

/** As the Hub issues them; nothing that could end a header. */
const TOKEN = /^hf_[\x21-\x7e]+$/;

export class Credentials {
  readonly #origin: string;
  readonly #readToken: () => Promise<string | undefined>;

  constructor(endpoint: URL, readToken: () => Promise<string | undefined>) {
    this.#origin = endpoint.origin;
    this.#readToken = readToken;
  }

  /** The token of the moment, if there is one. Errors: EACCES it can't be a token of the Hub; those of reading it. */
  async token(): Promise<string | undefined> {
    const token = (await this.#readToken())?.trim();
    if (token === undefined || token === '') return undefined;
    if (TOKEN.test(token)) return token;
    const message = 'the token (HF_TOKEN, or the file HF_TOKEN_PATH) is none of the Hub: those start with "hf_"';
    throw new TmaxError('EACCES', message, { source: 'hub' });
  }

  /** Whether a URL is the Hub's own: same scheme, host and port. */
  covers(url: URL): boolean {
    return url.origin === this.#origin;
  }

  /** Headers that prove to this URL who asks: none unless it is the Hub's own. Errors: as `token`. */
  async headersFor(url: URL): Promise<Record<string, string>> {
    const token = this.covers(url) ? await this.token() : undefined;
    return token === undefined ? {} : { authorization: `Bearer ${token}` };
  }
}
