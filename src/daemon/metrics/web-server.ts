/**
 * What a daemon shows on a port of this machine: metrics for Prometheus, a page for people. HTTP on the loopback interface
 * alone, GET alone, nothing can be ordered.
 *
 * A browser of this machine is the one way in from outside: a web site may send it here, under its own name (DNS rebinding)
 * or from a script of its own. So the Host must be one of loopback, and what a page of another origin asks for is refused.
 */

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { messageOf, systemErrorCode, TmaxError, toTmaxError } from '../../errors.js';

export interface WebDocument {
  readonly contentType: string;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Document by path, as "/metrics". */
export type WebDocuments = Readonly<Record<string, () => WebDocument | Promise<WebDocument>>>;

const ADDRESS = '127.0.0.1';
/** Any port: behind a tunnel it is another. */
const LOOPBACK_HOST = /^(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?$/i;
const LIMITS = {
  headersTimeout: 2_000,
  requestTimeout: 5_000,
  connectionsCheckingInterval: 500,
  /** Longer than a page waits between two looks, shorter than most intervals of scraping. */
  keepAliveTimeout: 5_000,
  maxHeaderSize: 8 * 1024,
};
const MAX_CLIENTS = 32;
/** Of every answer: it is for its own page alone, is what it says it is, and is out of date at once. */
const HEADERS = {
  'x-content-type-options': 'nosniff',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
};

export class WebServer {
  readonly #server: Server;
  readonly #log: Logger;
  #documents: WebDocuments | undefined;

  private constructor(log: Logger) {
    this.#log = log;
    this.#server = createServer(LIMITS, (request, response) => void this.#answer(request, response));
    this.#server.maxConnections = MAX_CLIENTS;
  }

  /** Takes the port, 0 for any that is free, and has nothing to show yet. Errors: EBUSY it is taken; EACCES; EIO. */
  static async start(port: number, log: Logger): Promise<WebServer> {
    const web = new WebServer(log);
    web.#server.listen(port, ADDRESS);
    try {
      await once(web.#server, 'listening');
    } catch (cause) {
      throw portError(port, cause);
    }
    web.#server.on('error', (error) => log.error({ reason: messageOf(error) }, 'the metrics port failed'));
    return web;
  }

  show(documents: WebDocuments): void {
    this.#documents = documents;
  }

  /** As "http://127.0.0.1:9464/". */
  get url(): string {
    const address = this.#server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    return `http://${ADDRESS}:${port}/`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? '/').split('?', 1)[0] ?? '/';
    const refusal = refusalOf(request);
    if (refusal !== undefined) return send(response, refusal.status, text(refusal.words));
    if (this.#documents === undefined) return send(response, 503, text('this daemon is starting'));
    const document = Object.hasOwn(this.#documents, path) ? this.#documents[path] : undefined;
    if (document === undefined) return send(response, 404, text(`nothing is at ${path}`));
    try {
      send(response, 200, await document());
    } catch (thrown) {
      const { level } = toTmaxError(thrown, 'daemon');
      this.#log[level]({ path, reason: messageOf(thrown) }, 'a request on the metrics port failed');
      send(response, 500, text(messageOf(thrown)));
    }
  }
}

function portError(port: number, cause: unknown): TmaxError {
  const code = systemErrorCode(cause);
  const words: Record<string, readonly ['EBUSY' | 'EACCES', string]> = {
    EADDRINUSE: ['EBUSY', `port ${port} of ${ADDRESS} is taken by another process; choose another, or 0 for any`],
    EACCES: ['EACCES', `port ${port} is only for root; choose one from 1024 on`],
  };
  const [errno, message] = words[code ?? ''] ?? (['EIO', messageOf(cause)] as const);
  return new TmaxError(errno, `--metrics-port: ${message}`, { cause, source: 'daemon', level: 'error' });
}

/** Why a request is not answered. `Sec-Fetch-*` are sent by browsers alone (https://www.w3.org/TR/fetch-metadata/). */
function refusalOf({
  method,
  headers,
}: IncomingMessage): { readonly status: number; readonly words: string } | undefined {
  if (!LOOPBACK_HOST.test(headers.host ?? '')) {
    return { status: 403, words: 'refused: ask for localhost or 127.0.0.1, by that name' };
  }
  const { origin, 'sec-fetch-site': site = 'none', 'sec-fetch-dest': destination } = headers;
  const isSameOrigin = origin === undefined || origin.toLowerCase() === `http://${headers.host?.toLowerCase()}`;
  // Whoever follows a link to the page looks at it; anything else from elsewhere would only be read by others.
  const isOwn = site === 'same-origin' || site === 'none' || destination === 'document';
  if (!isSameOrigin || !isOwn) return { status: 403, words: 'refused: asked for by a page of another origin' };
  if (method !== 'GET' && method !== 'HEAD') return { status: 405, words: 'only GET and HEAD are answered' };
  return undefined;
}

function text(words: string): WebDocument {
  return { contentType: 'text/plain; charset=utf-8', text: `${words}\n` };
}

/** Of HEAD, Node leaves the body out by itself. */
function send(response: ServerResponse, status: number, { contentType, text: body, headers = {} }: WebDocument): void {
  const allow: Record<string, string> = status === 405 ? { allow: 'GET, HEAD' } : {};
  response.writeHead(status, { ...HEADERS, ...allow, ...headers, 'content-type': contentType });
  response.end(body);
}
