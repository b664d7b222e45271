/**
 * A few single requests to the Hub, as a daemon would send them (token, proxy, certificates), but once and with short deadlines:
 * a person waits.
 */

import { pino } from 'pino';
import { hubSettings } from '../daemon/hub-settings.js';
import { HttpClient, type HttpReply } from '../sources/http-client.js';
import { HubHttp } from '../sources/hub-http.js';
import { RateGovernor, type RequestKind } from '../sources/rate-governor.js';
import type { Machine } from './machine.js';

const CONNECT_LIMIT_MS = 4_000;
const ANSWER_LIMIT_MS = 5_000;
/** A page of a listing has some 300 kB. */
const MAX_BODY_BYTES = 4 * 1024 * 1024;

export interface HubAnswer {
  readonly reply: HttpReply;
  /** Where it came from, or where a redirect leads. */
  readonly url: URL;
  /** Empty unless the status is 200. */
  readonly body: Buffer;
  readonly tookMs: number;
}

export interface GetOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Whether redirects are followed; default yes. */
  readonly follow?: boolean;
}

export class HubSession {
  readonly #client: HttpClient;
  readonly #http: HubHttp;
  readonly #signal: AbortSignal;

  /** Errors: EINVAL a proxy or certificate file that can't be used. */
  constructor({ settings }: Machine, signal: AbortSignal) {
    this.#signal = signal;
    const hub = hubSettings(settings, pino({ level: 'silent' }));
    const { endpoint, token } = hub;
    this.#client = new HttpClient({
      ...hub,
      connectTimeoutMs: CONNECT_LIMIT_MS,
      headersTimeoutMs: ANSWER_LIMIT_MS,
      idleTimeoutMs: ANSWER_LIMIT_MS,
    });
    this.#http = new HubHttp({ client: this.#client, endpoint, token, governor: new RateGovernor(), maxPauseMs: 0 });
  }

  get endpoint(): URL {
    return this.#http.endpoint;
  }

  /** Errors: EACCES it can't be read, or is none. */
  token(): Promise<string | undefined> {
    return this.#http.credentials.token();
  }

  /** Whatever the status. Errors: EHOSTUNREACH, EBADMSG as the sources word them; EINTR; those of the token. */
  async get(url: URL, kind: RequestKind, { headers = {}, follow = true }: GetOptions = {}): Promise<HubAnswer> {
    const chunks: Buffer[] = [];
    let length = 0;
    const startedAtMs = performance.now();
    const answer = await this.#http.get({
      url,
      kind,
      headers,
      signal: this.#signal,
      follows: () => follow,
      onReply: ({ status }) => {
        if (status !== 200) return undefined;
        return (chunk) => {
          length += chunk.length;
          if (length <= MAX_BODY_BYTES) chunks.push(chunk);
        };
      },
    });
    return { ...answer, body: Buffer.concat(chunks), tookMs: Math.round(performance.now() - startedAtMs) };
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}
