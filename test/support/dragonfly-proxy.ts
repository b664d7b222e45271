/**
 * A stand-in for the HTTP proxy of a Dragonfly daemon, which can't be installed here: its contract as far as tmaxfs relies on it, and no peers. A
 * task is fetched once, redirects followed, and kept under its id. Source of the contract: see src/sources/dragonfly.ts.
 */

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Agent, interceptors, request as send } from 'undici';
import type { Lifetime } from './temporary.js';

export interface SeenRequest {
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly taskId: string;
}

interface Task {
  readonly status: number;
  readonly body: Buffer;
}

/** As `MIN_PIECE_LENGTH`, in the units that are read. */
const PIECE_LENGTH = /^(\d+)mib$/i;
const MIN_PIECE_MIB = 4;

export class DragonflyProxy {
  readonly requests: SeenRequest[] = [];
  /** Tasks that were fetched from where they are. */
  backToSource = 0;
  /** What there is at addresses that nobody serves, https ones among them. */
  readonly elsewhere = new Map<string, Buffer>();
  /** Answers so by itself, where it is set. */
  refusal: number | undefined;
  readonly #tasks = new Map<string, Promise<Task>>();
  readonly #server = createServer((request, response) => {
    this.#answer(request, response).catch((error: unknown) => {
      respond(response, 500, { 'x-dragonfly-error-type': 'dfdaemon' }, Buffer.from(String(error)));
    });
  });
  readonly #agent = new Agent().compose(interceptors.redirect({ maxRedirections: 5 }));

  static async start(t: Lifetime): Promise<DragonflyProxy> {
    const proxy = new DragonflyProxy();
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    t.teardown(() => proxy.stop());
    return proxy;
  }

  get address(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it does not listen');
    return `127.0.0.1:${address.port}`;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
    await this.#agent.destroy();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = '', headers } = request;
    // An address without a host would be meant for its registry mirror.
    if (!/^https?:\/\//.test(url) || headers.host !== new URL(url).host) {
      respond(response, 400, { 'x-dragonfly-error-type': 'proxy' });
      return;
    }
    if (headers['x-dragonfly-use-p2p'] !== 'true') throw new Error('this test wants peers');
    if (this.refusal !== undefined) {
      respond(response, this.refusal, { 'x-dragonfly-error-type': 'proxy' });
      return;
    }
    const mebibytes = Number(PIECE_LENGTH.exec(String(headers['x-dragonfly-piece-length']))?.[1]);
    if (!(mebibytes >= MIN_PIECE_MIB)) throw new Error('no length of pieces');
    const content = String(headers['x-dragonfly-content-for-calculating-task-id']);
    const taskId = createHash('sha256').update(content).digest('hex');
    this.requests.push({ url, headers, taskId });
    const present = this.#tasks.get(taskId);
    const fetching = present ?? this.#fetch(url);
    this.#tasks.set(taskId, fetching);
    const { status, body } = await fetching;
    if (status !== 200) {
      this.#tasks.delete(taskId);
      respond(response, status, { 'x-dragonfly-error-type': 'backend' }, body);
      return;
    }
    const own = {
      'x-dragonfly-task-id': taskId,
      ...(present === undefined ? {} : { 'x-dragonfly-task-download-finished': 'true' }),
    };
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.range ?? '') ?? [];
    if (first === undefined) {
      respond(response, 200, own, body);
      return;
    }
    const end = Math.min(Number(last), body.length - 1);
    const range = `bytes ${first}-${end}/${body.length}`;
    respond(response, 206, { ...own, 'content-range': range }, body.subarray(Number(first), end + 1));
  }

  async #fetch(url: string): Promise<Task> {
    this.backToSource += 1;
    const known = this.elsewhere.get(url);
    if (known !== undefined) return { status: 200, body: known };
    const { statusCode, body } = await send(url, { dispatcher: this.#agent });
    return { status: statusCode, body: Buffer.from(await body.arrayBuffer()) };
  }
}

function respond(
  response: ServerResponse,
  status: number,
  headers: Readonly<Record<string, string>>,
  body: Buffer = Buffer.alloc(0),
): void {
  response.writeHead(status, { ...headers, 'content-length': body.length });
  response.end(body);
}
