/**
 * The control socket: HTTP over a Unix socket that only this user can reach. GET answers with a JSON document; POST starts
 * an action, whose words come back as lines of JSON while it goes on, and which ends when its client goes away. Knows
 * nothing of what is in them.
 */

import { once } from 'node:events';
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { messageOf, TmaxError, toTmaxError } from '../errors.js';

/** Document by path, as "/status"; the query's parameters are passed on. */
export type Documents = Readonly<Record<string, (query: URLSearchParams) => unknown | Promise<unknown>>>;

export interface ActionContext {
  /** Aborted when the client has gone. */
  readonly signal: AbortSignal;
  /** Sends one line. */
  readonly say: (line: unknown) => void;
}

/** Action by path, as "/reload", with what the client has posted, from JSON. What it resolves to is the last line's `result`. */
export type Actions = Readonly<Record<string, (body: unknown, context: ActionContext) => Promise<object>>>;

/** A client that does not finish its request in this time is cut off. */
const REQUEST_TIMEOUT_MS = 10_000;
const MAX_CLIENTS = 64;
/** Of what a client posts: a list of every task of a large pool has about 2 MB. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

export interface ControlServer {
  close(): Promise<void>;
}

export interface ControlServerOptions {
  readonly documents: Documents;
  readonly actions: Actions;
  readonly log: Logger;
}

/** Listens at `path`, in the place of a socket that a dead daemon left. Errors: EADDRINUSE and others as TmaxError EIO. */
export async function startControlServer(
  path: string,
  { documents, actions, log }: ControlServerOptions,
): Promise<ControlServer> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    const url = new URL(request.url ?? '/', 'http://tmaxfs');
    const failed = (thrown: unknown): { error: string; errno: string } => {
      const { errno, level } = toTmaxError(thrown, 'daemon');
      log[level]({ path: url.pathname, reason: messageOf(thrown) }, 'a request on the control socket failed');
      return { error: messageOf(thrown), errno };
    };
    const document = request.method === 'GET' ? own(documents, url.pathname) : undefined;
    const action = request.method === 'POST' ? own(actions, url.pathname) : undefined;
    if (document !== undefined) {
      Promise.resolve()
        .then(() => document(url.searchParams))
        .then((value) => answer(response, 200, value))
        .catch((thrown: unknown) => answer(response, 500, failed(thrown)));
    } else if (action !== undefined) {
      void act(action, request, response, failed);
    } else {
      answer(response, 404, { error: `no ${request.method} ${url.pathname} here` });
    }
  });
  server.maxConnections = MAX_CLIENTS;
  rmSync(path, { force: true });
  server.listen(path);
  try {
    await once(server, 'listening');
    chmodSync(path, 0o600);
  } catch (cause) {
    throw new TmaxError('EIO', `the control socket ${path} can't be made`, { cause, source: 'daemon', level: 'error' });
  }
  return {
    close: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      rmSync(path, { force: true });
    },
  };
}

function answer(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(value)}\n`);
}

async function act(
  action: Actions[string],
  request: IncomingMessage,
  response: ServerResponse,
  failed: (thrown: unknown) => unknown,
): Promise<void> {
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const say = (line: unknown): void => void response.write(`${JSON.stringify(line)}\n`);
  try {
    const body = await readJson(request);
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    response.flushHeaders();
    say({ result: await action(body, { signal: gone.signal, say }) });
  } catch (thrown) {
    if (gone.signal.aborted) return;
    if (!response.headersSent) response.writeHead(400, { 'content-type': 'application/x-ndjson' });
    say(failed(thrown));
  }
  response.end();
}

/** Errors: EINVAL too much, or no JSON. */
async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of request) {
    if (!Buffer.isBuffer(chunk)) continue;
    sizeBytes += chunk.length;
    if (sizeBytes > MAX_BODY_BYTES) {
      throw new TmaxError('EINVAL', `more than ${MAX_BODY_BYTES} bytes were posted`, { source: 'control' });
    }
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch (cause) {
    throw new TmaxError('EINVAL', 'what was posted is not JSON', { cause, source: 'control' });
  }
}

function own<Value>(record: Readonly<Record<string, Value>>, key: string): Value | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}
