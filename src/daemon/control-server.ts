/**
 * A control socket: HTTP over a Unix socket. GET answers with a document, JSON unless it is text; POST starts an action, whose words come back
 * as lines of JSON while it goes on, and which ends when its client goes away. Knows nothing of what is in them, and trusts
 * no client: whoever can reach the socket may send anything.
 */

import { once } from 'node:events';
import { chmodSync, chownSync, renameSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { basename, join } from 'node:path';
import type { Logger } from 'pino';
import { messageOf, TmaxError, toTmaxError } from '../errors.js';

/** A document that is not JSON. */
export class TextDocument {
  constructor(
    readonly contentType: string,
    readonly text: string,
  ) {}
}

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

/** A client that has not sent the head of its request in this time, or all of it, is cut off: others wait for its place. */
const HEADERS_TIMEOUT_MS = 2_000;
const REQUEST_TIMEOUT_MS = 10_000;
/** How often is looked for such clients. */
const CLIENT_CHECK_INTERVAL_MS = 500;
/** Clients ask once, so that nobody is kept for another request. */
const KEEP_ALIVE_MS = 1_000;
const MAX_CLIENTS = 64;
/** Of what a client posts: a list of every task of a large pool has about 2 MB. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

export interface ControlServer {
  close(): Promise<void>;
}

export interface ControlServerOptions {
  readonly documents: Documents;
  readonly actions: Actions;
  /** Of the socket: who may connect. */
  readonly mode: number;
  /** Folder of this user alone, on the same file system: the socket is made there, and moved once it is for whom it shall be. */
  readonly madeIn: string;
  /** Number of the group that the socket is given to; undefined: this user's own. */
  readonly group?: number | undefined;
  readonly log: Logger;
}

/** Listens at `path`, which must be free, and is again once closed. Errors: EADDRINUSE and others as TmaxError EIO. */
export async function startControlServer(
  path: string,
  { documents, actions, mode, madeIn, group, log }: ControlServerOptions,
): Promise<ControlServer> {
  const limits = {
    headersTimeout: HEADERS_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    connectionsCheckingInterval: CLIENT_CHECK_INTERVAL_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
  };
  const server = createServer(limits, (request, response) => {
    const { path: asked, query } = targetOf(request);
    const failed = (thrown: unknown): { error: string; errno: string } => {
      const { errno, level } = toTmaxError(thrown, 'daemon');
      log[level]({ path: asked, reason: messageOf(thrown) }, 'a request on the control socket failed');
      return { error: messageOf(thrown), errno };
    };
    const document = request.method === 'GET' ? own(documents, asked) : undefined;
    const action = request.method === 'POST' ? own(actions, asked) : undefined;
    if (document !== undefined) {
      Promise.resolve()
        .then(() => document(query))
        .then((value) => answer(response, 200, value))
        .catch((thrown: unknown) => answer(response, 500, failed(thrown)));
    } else if (action !== undefined) {
      void act(action, request, response, failed);
    } else {
      answer(response, 404, { error: `no ${request.method} ${asked} here` });
    }
  });
  server.maxConnections = MAX_CLIENTS;
  const madeAt = join(madeIn, basename(path));
  server.listen(madeAt);
  try {
    await once(server, 'listening');
    if (group !== undefined) giveTo(madeAt, group);
    chmodSync(madeAt, mode);
    renameSync(madeAt, path);
  } catch (cause) {
    server.close();
    throw new TmaxError('EIO', `the control socket ${path} can't be made: ${messageOf(cause)}`, {
      cause,
      source: 'daemon',
      level: 'error',
    });
  }
  return {
    close: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      rmSync(path, { force: true });
    },
  };
}

/** Errors: EPERM this user is not in the group. */
function giveTo(path: string, group: number): void {
  try {
    chownSync(path, -1, group);
  } catch (cause) {
    throw new TmaxError('EPERM', `this user may not give it to group ${group}, being no member`, { cause });
  }
}

/** A request's target is whatever the client has written ("//", "*"): it is cut at the first "?", never parsed as a URL. */
function targetOf({ url = '/' }: IncomingMessage): { readonly path: string; readonly query: URLSearchParams } {
  const end = url.indexOf('?');
  return end < 0
    ? { path: url, query: new URLSearchParams() }
    : { path: url.slice(0, end), query: new URLSearchParams(url.slice(end + 1)) };
}

function answer(response: ServerResponse, status: number, value: unknown): void {
  if (value instanceof TextDocument) {
    response.writeHead(status, { 'content-type': value.contentType });
    response.end(value.text);
    return;
  }
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
