/**
 * A Hub on loopback, faithful on the wire: the API and the resolver on 127.0.0.1, the storage on 127.0.0.2, so that the
 * two differ in host name as they do in the world and a token that strays is seen. They may be told to listen elsewhere.
 *
 * For tests, and for `tmaxfs demo`. It can be told to fail in every way a Hub fails (`fault`), and it remembers what it
 * was asked (`requests`).
 */

import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { TmaxError } from '../errors.js';
import { FakeApi } from './fake-hub-api.js';
import { FakeCdn } from './fake-hub-cdn.js';
import { FaultPlan, type FaultRule, type InstalledFault } from './fake-hub-faults.js';
import { type FakeRateLimit, FixedWindow } from './fake-hub-limits.js';
import { RequestLog } from './fake-hub-log.js';
import { type Reply, send, textReply } from './fake-hub-reply.js';
import { type FakeRepository, ServedRepository } from './fake-hub-repository.js';

export interface FakeHubOptions {
  readonly repositories: readonly FakeRepository[];
  /** Port of the Hub; default: a free one. */
  readonly port?: number;
  /** Where Hub and storage listen, two addresses of this machine; default: of loopback. */
  readonly addresses?: readonly [hub: string, cdn: string];
  /** Path prefix of the endpoint, as mirrors have one: "/hf". */
  readonly basePath?: string;
  /** Entries of a page of a listing; default 1,000 as on the Hub. */
  readonly pageSize?: number;
  /** How long a signed URL lives, in milliseconds; default one hour. */
  readonly signatureLifetimeMs?: number;
  /** How files outside LFS are served: behind a relative 307 (default) or at once. */
  readonly smallFiles?: 'redirect' | 'direct';
  /** A mirror that sends none of the optional headers. */
  readonly bare?: boolean;
  readonly rateLimits?: { readonly api?: FakeRateLimit; readonly resolvers?: FakeRateLimit };
}

const LOOPBACK_ADDRESSES = ['127.0.0.1', '127.0.0.2'] as const;
const DEFAULT_PAGE_SIZE = 1000;
const DEFAULT_SIGNATURE_LIFETIME_MS = 3_600_000;
/** A request body larger than this is not read. */
const MAX_REQUEST_BYTES = 4 * 1024 * 1024;

export class FakeHub {
  /** What HF_ENDPOINT would be set to. */
  readonly endpoint: string;
  readonly cdnOrigin: string;
  readonly requests = new RequestLog();
  readonly #faults = new FaultPlan();
  readonly #repositories: ReadonlyMap<string, ServedRepository>;
  readonly #cdn: FakeCdn;
  readonly #servers: readonly Server[];

  private constructor(
    endpoint: string,
    cdnOrigin: string,
    repositories: ReadonlyMap<string, ServedRepository>,
    cdn: FakeCdn,
    servers: readonly Server[],
  ) {
    this.endpoint = endpoint;
    this.cdnOrigin = cdnOrigin;
    this.#repositories = repositories;
    this.#cdn = cdn;
    this.#servers = servers;
  }

  static async start(options: FakeHubOptions): Promise<FakeHub> {
    const { basePath = '', rateLimits = {} } = options;
    const [hubServer, cdnServer] = [createServer(), createServer()];
    const [hubAddress, cdnAddress] = options.addresses ?? LOOPBACK_ADDRESSES;
    const origin = await listen(hubServer, hubAddress, options.port ?? 0);
    const cdnOrigin = await listen(cdnServer, cdnAddress, 0);
    const endpoint = origin + basePath;
    const cdn = new FakeCdn(options.signatureLifetimeMs ?? DEFAULT_SIGNATURE_LIFETIME_MS);
    const repositories = new Map(options.repositories.map((one) => [one.name, new ServedRepository(one)]));
    const api = new FakeApi(repositories, cdn, {
      endpoint,
      cdnOrigin,
      pageSize: options.pageSize ?? DEFAULT_PAGE_SIZE,
      smallFiles: options.smallFiles ?? 'redirect',
      bare: options.bare ?? false,
    });
    const windows = {
      api: rateLimits.api && new FixedWindow('api', rateLimits.api),
      resolvers: rateLimits.resolvers && new FixedWindow('resolvers', rateLimits.resolvers),
    };
    const hub = new FakeHub(endpoint, cdnOrigin, repositories, cdn, [hubServer, cdnServer]);

    hubServer.on('request', (request, response) => {
      void hub.#handle('hub', request, response, (url, body) => {
        const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
        if (!url.startsWith(basePath)) return { file: undefined, answer: () => textReply(404, 'no such page') };
        const place = new URL(origin + url.slice(basePath.length));
        const route = api.route({ method: request.method ?? 'GET', url: place, token, body });
        const answer = () => {
          const counted = windows[route.bucket]?.count();
          if (counted?.isOver) return textReply(429, 'Too Many Requests', counted.headers);
          const reply = route.answer();
          return counted === undefined ? reply : { ...reply, headers: { ...reply.headers, ...counted.headers } };
        };
        return { file: route.file, answer };
      });
    });
    cdnServer.on('request', (request, response) => {
      void hub.#handle('cdn', request, response, (url) => ({
        file: cdn.fileAt(url)?.path,
        answer: () => cdn.answer(url, request.headers.authorization),
      }));
    });
    return hub;
  }

  /** A served repository, to move its branches and to add commits and readers. Errors: ENOENT. */
  repository(name: string): ServedRepository {
    const repository = this.#repositories.get(name);
    if (repository === undefined) throw new TmaxError('ENOENT', `the fake Hub has no repository ${name}`);
    return repository;
  }

  fault(rule: FaultRule): InstalledFault {
    return this.#faults.add(rule);
  }

  clearFaults(): void {
    this.#faults.clear();
  }

  /** Lets every storage URL handed out so far run out. */
  expireSignatures(): void {
    this.#cdn.expireAll();
  }

  /** Stops listening and cuts every connection. May be called again. */
  async close(): Promise<void> {
    const listening = this.#servers.filter((server) => server.listening);
    const closed = listening.map((server) => once(server, 'close'));
    for (const server of listening) {
      server.close();
      server.closeAllConnections();
    }
    await Promise.all(closed);
  }

  async #handle(
    server: 'hub' | 'cdn',
    request: IncomingMessage,
    response: ServerResponse,
    route: (url: string, body: Buffer) => Handled,
  ): Promise<void> {
    const url = request.url ?? '/';
    const { method = 'GET', headers } = request;
    try {
      const { file, answer } = route(url, await readBody(request));
      const entry = this.requests.add({ server, method, host: headers.host ?? '', url, headers, file });
      response.on('close', () => {
        entry.state = response.writableFinished ? 'complete' : 'broken';
        this.requests.changed(entry);
      });
      await send(answer(), this.#faults.strike(entry), request, response, entry, this.requests);
    } catch {
      // The client went away, or a body can't be read: what is left to do is to break the answer visibly.
      response.destroy();
    }
  }
}

/** What a request is about, and its answer if nothing goes wrong. */
interface Handled {
  readonly file: string | undefined;
  answer(): Reply;
}

async function listen(server: Server, address: string, port: number): Promise<string> {
  server.listen(port, address);
  await once(server, 'listening');
  const bound = server.address();
  if (bound === null || typeof bound === 'string') throw new TmaxError('EIO', `no port on ${address}`);
  return `http://${address}:${bound.port}`;
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let sizeBytes = 0;
  for await (const chunk of request) {
    if (!Buffer.isBuffer(chunk)) continue;
    sizeBytes += chunk.length;
    if (sizeBytes <= MAX_REQUEST_BYTES) chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
