/** What the fake Hub was asked, for tests to read and to wait for. */

import type { IncomingHttpHeaders } from 'node:http';
import { TmaxError } from '../errors.js';

export type ServerName = 'hub' | 'cdn';

export interface LoggedRequest {
  /** From 1, over both servers, in order of arrival. */
  readonly number: number;
  readonly server: ServerName;
  readonly method: string;
  /** As the client wrote it in the Host header. */
  readonly host: string;
  /** Path and query as sent. */
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  /** Path in the repository that the request is about, if it is about a file. */
  readonly file: string | undefined;
  /** 0 until an answer has begun. */
  readonly status: number;
  /** Bytes of the body handed to the socket so far. */
  readonly bytesSent: number;
  /** `complete` when the whole answer was sent; `broken` when the connection ended before that, from either side. */
  readonly state: 'open' | 'complete' | 'broken';
}

/** The record while the request is being answered. */
export type OpenRequest = { -readonly [Key in keyof LoggedRequest]: LoggedRequest[Key] };

/** How long a test waits for a request by default: far above any loopback exchange, below ava's own limit. */
const DEFAULT_WAIT_MS = 20_000;

interface Waiter {
  readonly predicate: (request: LoggedRequest) => boolean;
  readonly resolve: (request: LoggedRequest) => void;
}

export class RequestLog {
  readonly #requests: LoggedRequest[] = [];
  readonly #waiters = new Set<Waiter>();

  get all(): readonly LoggedRequest[] {
    return this.#requests;
  }

  filter(predicate: (request: LoggedRequest) => boolean): LoggedRequest[] {
    return this.#requests.filter(predicate);
  }

  /** Requests for the bytes or the place of one file. */
  about(file: string, server?: ServerName): LoggedRequest[] {
    return this.filter((request) => request.file === file && (server === undefined || request.server === server));
  }

  clear(): void {
    this.#requests.length = 0;
  }

  /**
   * The first request, past or to come, for which the predicate holds; it is asked again at every change of a request.
   * Errors: ETIMEDOUT.
   */
  waitFor(
    predicate: (request: LoggedRequest) => boolean,
    { timeoutMs = DEFAULT_WAIT_MS }: { readonly timeoutMs?: number } = {},
  ): Promise<LoggedRequest> {
    const present = this.#requests.find(predicate);
    if (present !== undefined) return Promise.resolve(present);
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        predicate,
        resolve: (request) => {
          clearTimeout(timer);
          this.#waiters.delete(waiter);
          resolve(request);
        },
      };
      const timer = setTimeout(() => {
        this.#waiters.delete(waiter);
        reject(new TmaxError('ETIMEDOUT', `no such request within ${timeoutMs} ms, after ${this.#requests.length}`));
      }, timeoutMs);
      this.#waiters.add(waiter);
    });
  }

  /** For the servers: enters a request. */
  add(request: Omit<OpenRequest, 'number' | 'status' | 'bytesSent' | 'state'>): OpenRequest {
    const entry: OpenRequest = {
      number: this.#requests.length + 1,
      status: 0,
      bytesSent: 0,
      state: 'open',
      ...request,
    };
    this.#requests.push(entry);
    this.changed(entry);
    return entry;
  }

  /** For the servers: tells the waiters that an entry has changed. */
  changed(entry: LoggedRequest): void {
    for (const waiter of this.#waiters) {
      if (waiter.predicate(entry)) waiter.resolve(entry);
    }
  }
}
