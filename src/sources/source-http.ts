/**
 * GETs as a source needs them: redirects followed by hand and bounded, so that credentials go where they belong and nowhere else;
 * pauses that the server has asked for obeyed before a request is sent; a server that answers nobody not asked by everybody.
 */

import { TransientFailure } from './failure.js';
import { type BodySink, type HttpClient, type HttpReply, type HttpRequest, parseLocation } from './http-client.js';
import { MAX_REDIRECTS } from './limits.js';
import type { RateGovernor, RequestKind } from './rate-governor.js';
import { requestedPauseMs } from './rate-limit-headers.js';
import { pause } from './retry.js';

export interface SourceHttpOptions {
  /** Owned by the caller; may be shared. */
  readonly client: HttpClient;
  readonly governor: RateGovernor;
  /** Longest pause that a server can impose. */
  readonly maxPauseMs: number;
}

export interface SourceGet {
  readonly url: URL;
  readonly kind: RequestKind;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  /** Further headers for one URL of the chain, such as credentials; default: none. */
  readonly headersFor?: (url: URL) => Promise<Readonly<Record<string, string>>>;
  /** Whether a redirect may be followed; default: always. */
  readonly follows?: (next: URL) => boolean;
  /** Called when the request is sent, after whatever pause the server has asked for. */
  readonly onSend?: () => void;
  /** Called for the answer that ends the chain; see `HttpRequest`. */
  readonly onReply: (reply: HttpReply) => BodySink | undefined;
}

export interface SourceAnswer {
  readonly reply: HttpReply;
  /** Where it came from, or where the redirect that was not followed leads. */
  readonly url: URL;
}

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

export class SourceHttp {
  readonly #client: HttpClient;
  readonly #governor: RateGovernor;
  readonly #maxPauseMs: number;

  constructor({ client, governor, maxPauseMs }: SourceHttpOptions) {
    this.#client = client;
    this.#governor = governor;
    this.#maxPauseMs = maxPauseMs;
  }

  /** Errors: as `HttpClient.get`; a `TransientFailure` with EBADMSG for a chain of redirects without end; those of `headersFor`. */
  async get(options: SourceGet): Promise<SourceAnswer> {
    const { url, kind, headers = {}, signal, follows = () => true, headersFor = async () => ({}), onSend } = options;
    let current = url;
    for (let hops = 0; hops <= MAX_REDIRECTS; hops += 1) {
      const waitMs = this.#governor.waitMs(kind);
      // Where another source can be asked, that is what to do meanwhile.
      if (waitMs > this.#maxPauseMs) throw this.#client.unreachable(current, 'it has asked for a pause');
      if (waitMs > 0) await pause(waitMs, signal);
      if (!this.#governor.admits(kind)) throw this.#client.unreachable(current, 'nothing was answered for a while');
      const request = { url: current, headers: { ...headers, ...(await headersFor(current)) }, signal };
      onSend?.();
      const reply = await this.#send(kind, request, (answer) =>
        REDIRECTS.has(answer.status) ? undefined : options.onReply(answer),
      );
      if (reply.status === 429) this.#pauseAll(kind, reply);
      if (!REDIRECTS.has(reply.status)) return { reply, url: current };
      const next = parseLocation(reply, current);
      if (!follows(next)) return { reply, url: next };
      current = next;
    }
    throw new TransientFailure('EBADMSG', `${url.host} redirects in circles for ${url.pathname}`);
  }

  /** One request, its fate told to all others: a server that answers nobody is not asked by everybody. */
  async #send(
    kind: RequestKind,
    request: Omit<HttpRequest, 'onReply'>,
    onReply: HttpRequest['onReply'],
  ): Promise<HttpReply> {
    let isAnswered = false;
    try {
      return await this.#client.get({
        ...request,
        onReply: (reply) => {
          isAnswered = true;
          this.#governor.answered(kind);
          return onReply(reply);
        },
      });
    } catch (error) {
      if (!isAnswered && error instanceof TransientFailure) this.#governor.unanswered(kind);
      throw error;
    }
  }

  #pauseAll(kind: RequestKind, reply: HttpReply): void {
    this.#governor.tooMany(kind);
    const pauseMs = requestedPauseMs(reply);
    if (pauseMs !== undefined) this.#governor.pause(kind, Math.min(pauseMs, this.#maxPauseMs));
  }
}
