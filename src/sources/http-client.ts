/**
 * One GET: deadlines, back-pressure, abort. No redirects, no retries, no judgement of the status; see the layers above.
 *
 * Invariants: a request ends, well or badly, within connect + headers timeouts plus the time its bytes take at more than
 * a trickle; it ends at once when its signal is aborted; its body is never held in memory.
 */

import type { Dispatcher } from 'undici';
import { messageOf, systemErrorCode, TmaxError } from '../errors.js';
import { type ConnectionSettings, Dispatchers } from './dispatchers.js';
import { aborted, TransientFailure } from './failure.js';
import { MAX_DISCARDED_BYTES } from './limits.js';

export interface HttpSettings extends ConnectionSettings {
  /** From the connection to the first byte of an answer. */
  readonly headersTimeoutMs: number;
  /** Within a body: the longest time without a byte. */
  readonly idleTimeoutMs: number;
  /** A body that brings less than this, over `speedWindowMs`, is given up; 0: none is. */
  readonly minBytesPerSecond: number;
  readonly speedWindowMs: number;
  readonly userAgent: string;
}

export interface HttpReply {
  readonly status: number;
  /** First value of a header, by lower-case name. */
  header(name: string): string | undefined;
}

/** Takes a piece of a body; a promise holds the next piece back. Pieces may be kept, they are not reused. */
export type BodySink = (chunk: Buffer) => void | Promise<void>;

export interface HttpRequest {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  /** Says where the body goes; undefined if nobody wants it. What it throws ends the request. */
  readonly onReply: (reply: HttpReply) => BodySink | undefined;
}

/** What undici says when its connections were closed from this side. */
const CLOSED_CODES: ReadonlySet<string> = new Set(['UND_ERR_CLOSED', 'UND_ERR_DESTROYED']);

/** What OpenSSL says of a certificate that no retry will mend. */
const CERTIFICATE_CODES: ReadonlySet<string> = new Set([
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);

export class HttpClient {
  readonly #settings: HttpSettings;
  readonly #dispatchers: Dispatchers;

  /** Errors: EINVAL unreadable certificate file. */
  constructor(settings: HttpSettings) {
    this.#settings = settings;
    this.#dispatchers = new Dispatchers(settings);
  }

  /**
   * Resolves once the whole body was taken.
   * Errors: EINTR aborted; a `TransientFailure` with EHOSTUNREACH for whatever the network does; what the callbacks throw.
   */
  get(request: HttpRequest): Promise<HttpReply> {
    if (request.signal.aborted) return Promise.reject(aborted());
    const { dispatcher, origin, path, where, headers: routing } = this.#dispatchers.route(request.url);
    const exchange = new Exchange(request, this.#settings, where);
    const usual = { 'user-agent': this.#settings.userAgent, 'accept-encoding': 'identity' };
    dispatcher.dispatch(
      { origin, path, method: 'GET', headers: { ...usual, ...routing, ...request.headers } },
      exchange,
    );
    return exchange.done;
  }

  /** The failure of a request that is not even sent, worded as if it had been. */
  unreachable(url: URL, reason: string): TransientFailure {
    return transportFailure(this.#dispatchers.route(url).where, reason);
  }

  async close(): Promise<void> {
    await this.#dispatchers.close();
  }
}

/** A request on its way, as undici reports it. Settles `done` once; whatever is reported later is ignored. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly done: Promise<HttpReply>;
  readonly #request: HttpRequest;
  readonly #settings: HttpSettings;
  readonly #where: string;
  #firstByteTimer: NodeJS.Timeout;
  readonly #onAbort = (): void => this.#fail(aborted());
  #resolve: (reply: HttpReply) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #settled = false;
  #controller: Dispatcher.DispatchController | undefined;
  #reply: HttpReply | undefined;
  #sink: BodySink | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #speedTimer: NodeJS.Timeout | undefined;
  #bytesInWindow = 0;
  #discardedBytes = 0;
  /** Resolves when the sink has taken what it was given last. */
  #taken: Promise<void> | undefined;

  constructor(request: HttpRequest, settings: HttpSettings, where: string) {
    this.#request = request;
    this.#settings = settings;
    this.#where = where;
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#firstByteTimer = this.#awaitFirstByte(settings.connectTimeoutMs + settings.headersTimeoutMs);
    request.signal.addEventListener('abort', this.#onAbort, { once: true });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#settled) {
      controller.abort(aborted());
      return;
    }
    clearTimeout(this.#firstByteTimer);
    this.#firstByteTimer = this.#awaitFirstByte(this.#settings.headersTimeoutMs);
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (this.#settled || status < 200) return;
    clearTimeout(this.#firstByteTimer);
    const first = (value: string | string[] | undefined) => (Array.isArray(value) ? value[0] : value);
    this.#reply = { status, header: (name) => first(headers[name]) };
    this.#startClocks();
    try {
      this.#sink = this.#request.onReply(this.#reply);
    } catch (error) {
      this.#fail(error);
    }
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    // undici hands on an empty piece whenever the flow is resumed.
    if (this.#settled || chunk.length === 0) return;
    this.#bytesInWindow += chunk.length;
    this.#idleTimer?.refresh();
    if (this.#sink === undefined) {
      this.#discard(chunk.length);
      return;
    }
    try {
      const taken = this.#sink(chunk);
      if (taken !== undefined) this.#holdUntil(taken, controller);
    } catch (error) {
      this.#fail(error);
    }
  }

  onResponseEnd(): void {
    const reply = this.#reply;
    if (this.#settled || reply === undefined) return;
    if (this.#taken === undefined) this.#succeed(reply);
    else void this.#taken.then(() => this.#succeed(reply));
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(this.#failureOf(messageOf(error), error));
  }

  #awaitFirstByte(timeoutMs: number): NodeJS.Timeout {
    return setTimeout(() => this.#fail(this.#failureOf(`no answer within ${timeoutMs} ms`)), timeoutMs);
  }

  /** Stops the flow, and the clocks with it: a slow disk is not a slow server. */
  #holdUntil(taken: Promise<void>, controller: Dispatcher.DispatchController): void {
    controller.pause();
    this.#stopClocks();
    this.#taken = taken.then(
      () => {
        this.#taken = undefined;
        if (this.#settled) return;
        this.#startClocks();
        controller.resume();
      },
      (error: unknown) => this.#fail(error),
    );
  }

  /** Made anew: a timer that was cleared does not come back. */
  #startClocks(): void {
    const { idleTimeoutMs, minBytesPerSecond, speedWindowMs } = this.#settings;
    this.#stopClocks();
    const stalled = `the answer stalled: nothing came for ${idleTimeoutMs} ms`;
    this.#idleTimer = setTimeout(() => this.#fail(this.#failureOf(stalled)), idleTimeoutMs);
    if (minBytesPerSecond === 0) return;
    this.#bytesInWindow = 0;
    this.#speedTimer = setInterval(() => {
      const bytes = this.#bytesInWindow;
      this.#bytesInWindow = 0;
      if (bytes * 1000 >= minBytesPerSecond * speedWindowMs) return;
      const slow = `the answer is too slow: ${bytes} bytes in ${speedWindowMs} ms, wanted are ${minBytesPerSecond} a second`;
      this.#fail(this.#failureOf(slow));
    }, speedWindowMs);
  }

  #stopClocks(): void {
    clearTimeout(this.#idleTimer);
    clearInterval(this.#speedTimer);
  }

  #discard(bytes: number): void {
    this.#discardedBytes += bytes;
    if (this.#discardedBytes <= MAX_DISCARDED_BYTES || this.#reply === undefined) return;
    const reply = this.#reply;
    this.#succeed(reply);
    this.#controller?.abort(aborted());
  }

  #succeed(reply: HttpReply): void {
    if (this.#settle()) this.#resolve(reply);
  }

  #fail(error: unknown): void {
    if (!this.#settle()) return;
    this.#controller?.abort(error instanceof Error ? error : aborted());
    this.#reject(error);
  }

  #settle(): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    clearTimeout(this.#firstByteTimer);
    this.#stopClocks();
    this.#request.signal.removeEventListener('abort', this.#onAbort);
    return true;
  }

  #failureOf(reason: string, cause?: unknown): TmaxError {
    const { url } = this.#request;
    const code = cause === undefined ? undefined : systemErrorCode(cause);
    if (code !== undefined && CLOSED_CODES.has(code)) return aborted();
    if (code !== undefined && CERTIFICATE_CODES.has(code)) {
      const hint = 'if a proxy opens TLS here, set SSL_CERT_FILE to a bundle with its authority';
      return new TmaxError('EHOSTUNREACH', `the certificate of ${url.host} is not trusted (${code}): ${hint}`, {
        cause,
      });
    }
    const detail = code === undefined || reason.includes(code) ? reason : `${reason} (${code})`;
    return transportFailure(this.#where, detail, cause);
  }
}

/** Never with a query in it: signatures are secrets. */
function transportFailure(where: string, detail: string, cause?: unknown): TransientFailure {
  return new TransientFailure('EHOSTUNREACH', `${where}: ${detail}`, { cause });
}

/** A number from a header of decimal digits, or undefined if it is absent or anything else. */
export function headerNumber(reply: HttpReply, name: string): number | undefined {
  const text = reply.header(name);
  const value = text !== undefined && /^\d+$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(value) ? value : undefined;
}

/** Where a redirect leads. Errors: a `TransientFailure` with EBADMSG, nowhere that HTTP can go. */
export function parseLocation(reply: HttpReply, base: URL): URL {
  const location = reply.header('location') ?? '';
  const next = URL.canParse(location, base.href) ? new URL(location, base) : undefined;
  if (next !== undefined && (next.protocol === 'http:' || next.protocol === 'https:')) return next;
  throw new TransientFailure('EBADMSG', `${base.host} redirects to something that is no web address`);
}
