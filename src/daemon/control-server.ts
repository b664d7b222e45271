/**
 * The control socket: HTTP over a Unix socket that only this user can reach. It answers with JSON documents and knows
 * nothing of what is in them.
 */

import { once } from 'node:events';
import { chmodSync, rmSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { messageOf, TmaxError, toTmaxError } from '../errors.js';

/** Document by path, as "/status"; the query's parameters are passed on. */
export type Documents = Readonly<Record<string, (query: URLSearchParams) => unknown | Promise<unknown>>>;

/** A client that does not finish its request in this time is cut off. */
const REQUEST_TIMEOUT_MS = 10_000;
const MAX_CLIENTS = 64;

export interface ControlServer {
  close(): Promise<void>;
}

/** Listens at `path`, in the place of a socket that a dead daemon left. Errors: EADDRINUSE and others as TmaxError EIO. */
export async function startControlServer(path: string, documents: Documents, log: Logger): Promise<ControlServer> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    const url = new URL(request.url ?? '/', 'http://tmaxfs');
    const document = Object.hasOwn(documents, url.pathname) ? documents[url.pathname] : undefined;
    if (request.method !== 'GET' || document === undefined) {
      answer(response, 404, { error: `no ${request.method} ${url.pathname} here` });
      return;
    }
    Promise.resolve()
      .then(() => document(url.searchParams))
      .then((value) => answer(response, 200, value))
      .catch((thrown: unknown) => {
        const error = toTmaxError(thrown, 'daemon');
        log[error.level]({ path: url.pathname, reason: messageOf(error) }, 'a request on the control socket failed');
        answer(response, 500, { error: messageOf(error) });
      });
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
