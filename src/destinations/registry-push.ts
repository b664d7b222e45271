/**
 * Brings blobs into a repository of an OCI registry, each with a manifest of its own that refers to it: what no manifest refers to,
 * a registry's garbage collection removes. The manifest is that of an image as `apptainer push` makes it, under the tag
 * `sif-<sha256>`, so that `apptainer pull oras://` finds it too.
 *
 * The registry hashes what it is given, and refuses what is not the blob. Sources: the distribution and image specifications of OCI
 * (https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md, https://github.com/opencontainers/image-spec).
 */

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { type Dispatcher, request } from 'undici';
import { type ErrnoName, messageOf, TmaxError } from '../errors.js';
import { Dispatchers } from '../sources/dispatchers.js';
import { HttpClient, type HttpSettings } from '../sources/http-client.js';
import { RateGovernor } from '../sources/rate-governor.js';
import { blobUrl, manifestUrl, type Registry, uploadsUrl } from '../sources/registry.js';
import { RegistryLogin } from '../sources/registry-login.js';
import { SourceHttp } from '../sources/source-http.js';

export interface PushedBlob {
  readonly sha256: string;
  readonly sizeBytes: number;
  /** In the repository of the Hub: its last part becomes the image's title. */
  readonly path: string;
}

interface Reply {
  readonly status: number;
  header(name: string): string | undefined;
}

interface Request {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer | Readable;
  /** Longest time for it all. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

const MANIFEST_TYPE = 'application/vnd.oci.image.manifest.v1+json';
const SIF_CONFIG_TYPE = 'application/vnd.sylabs.sif.config.v1+json';
const SIF_LAYER_TYPE = 'application/vnd.sylabs.sif.layer.v1.sif';
const EMPTY = Buffer.from('{}');
const EMPTY_SHA256 = createHash('sha256').update(EMPTY).digest('hex');

const CHUNK_BYTES = 1 << 20;
/** Of an answer that nobody reads, to keep its connection. */
const MAX_DISCARDED_BYTES = 64 * 1024;
/** After the last byte: a registry may move what it has got from one store to another before it answers. */
const SETTLE_TIMEOUT_MS = 300_000;
const MAX_PAUSE_MS = 60_000;

export class RegistryPush {
  /** `user:password` in base64, for the moment. */
  secret: string | undefined;
  readonly #registry: Registry;
  readonly #http: HttpSettings;
  readonly #dispatchers: Dispatchers;
  readonly #login: RegistryLogin;

  /** Errors: EINVAL proxy or certificate file. */
  constructor(registry: Registry, http: HttpSettings) {
    this.#registry = registry;
    this.#http = http;
    this.#dispatchers = new Dispatchers(http);
    const asking = { client: new HttpClient(http), governor: new RateGovernor(), maxPauseMs: MAX_PAUSE_MS };
    this.#login = new RegistryLogin(registry, new SourceHttp(asking), 'pull,push');
  }

  /** Whether the blob and its manifest are there. Errors: as `push`. */
  async has(blob: PushedBlob): Promise<boolean> {
    return (await this.#hasBlob(blob)) && (await this.#isAt(manifestUrl(this.#registry, tagOf(blob))));
  }

  /**
   * Uploads the file at `path`, unless it is there, and then its manifest.
   * Errors: EACCES 401, 403; EROFS the registry takes nothing; ENOSPC it says so; EBADMSG the file is not that blob;
   * EHOSTUNREACH no answer, or one that may be another next time; EIO any other.
   */
  async push(blob: PushedBlob, path: string): Promise<'written' | 'there'> {
    if (await this.has(blob)) return 'there';
    if (!(await this.#hasBlob(blob))) await this.#uploadFile(blob, path);
    const config = { sha256: EMPTY_SHA256, sizeBytes: EMPTY.length, path: 'config' };
    if (!(await this.#hasBlob(config))) await this.#upload(config, () => ({ body: EMPTY }));
    const reply = await this.#send('PUT', manifestUrl(this.#registry, tagOf(blob)), {
      headers: { 'content-type': MANIFEST_TYPE },
      body: JSON.stringify(manifestOf(blob)),
    });
    if (reply.status !== 201) throw this.#failure(reply, `the manifest of ${blob.path}`);
    return 'written';
  }

  async #hasBlob({ sha256, sizeBytes }: PushedBlob): Promise<boolean> {
    return await this.#isAt(blobUrl(this.#registry, sha256), sizeBytes);
  }

  async #isAt(url: URL, sizeBytes?: number): Promise<boolean> {
    const reply = await this.#send('HEAD', url, { headers: { accept: `${MANIFEST_TYPE}, */*` } });
    const length = reply.header('content-length');
    if (reply.status === 200) return sizeBytes === undefined || length === undefined || Number(length) === sizeBytes;
    // Where it sends on to, there it is.
    if (reply.status >= 300 && reply.status < 400) return true;
    if (reply.status === 404) return false;
    throw this.#failure(reply, url.pathname);
  }

  async #uploadFile(blob: PushedBlob, path: string): Promise<void> {
    const controller = new AbortController();
    let timer: NodeJS.Timeout | undefined;
    let isOver = false;
    const expect = (timeoutMs: number) => {
      clearTimeout(timer);
      // The registry may have answered before the end of the file was read.
      if (isOver) return;
      const words = `${this.#registry.shown} took nothing of ${blob.path} for ${timeoutMs} ms`;
      timer = setTimeout(() => controller.abort(unreachable(words)), timeoutMs);
    };
    const { idleTimeoutMs } = this.#http;
    async function* chunks(): AsyncGenerator<Buffer> {
      for await (const chunk of createReadStream(path, { highWaterMark: CHUNK_BYTES })) {
        expect(idleTimeoutMs);
        yield chunk;
      }
      expect(SETTLE_TIMEOUT_MS);
    }
    expect(idleTimeoutMs);
    try {
      const body = () => Readable.from(chunks(), { objectMode: false, highWaterMark: CHUNK_BYTES });
      await this.#upload(blob, () => ({ body: body(), signal: controller.signal }));
    } finally {
      isOver = true;
      clearTimeout(timer);
    }
  }

  /** `makeBody`: asked for when the registry is ready to take it. */
  async #upload(blob: PushedBlob, makeBody: () => Pick<Request, 'body' | 'signal'>): Promise<void> {
    const start = uploadsUrl(this.#registry);
    const started = await this.#send('POST', start, { headers: { 'content-length': '0' } });
    const location = started.header('location') ?? '';
    if (started.status !== 202 || !URL.canParse(location, start.href)) throw this.#failure(started, blob.path);
    // What stands in it is the registry's own business, and stays as it is.
    const place = new URL(location, start);
    place.hash = '';
    const { href, search } = place;
    const url = new URL(`${href}${search === '' ? '?' : '&'}digest=sha256:${blob.sha256}`);
    const headers = { 'content-type': 'application/octet-stream', 'content-length': String(blob.sizeBytes) };
    const reply = await this.#sendOnce('PUT', url, { headers, ...makeBody() });
    if (reply.status !== 201) throw this.#failure(reply, blob.path);
  }

  /** Once more where it only now says how it wants to be asked. */
  async #send(method: Dispatcher.HttpMethod, url: URL, options: Request): Promise<Reply> {
    const reply = await this.#sendOnce(method, url, options);
    if (reply.status !== 401) return reply;
    this.#login.refused(reply, url.pathname);
    return await this.#sendOnce(method, url, options);
  }

  async #sendOnce(method: Dispatcher.HttpMethod, url: URL, options: Request): Promise<Reply> {
    await this.#login.ready(async () => this.secret);
    const { connectTimeoutMs, headersTimeoutMs, userAgent } = this.#http;
    const signal = options.signal ?? AbortSignal.timeout(connectTimeoutMs + headersTimeoutMs);
    try {
      const { statusCode, headers, body } = await request(url, {
        method,
        dispatcher: this.#dispatchers.route(url).dispatcher,
        headers: { 'user-agent': userAgent, ...options.headers, ...this.#login.headersFor(url) },
        body: options.body ?? null,
        signal,
      });
      await body.dump({ limit: MAX_DISCARDED_BYTES, signal }).catch(() => undefined);
      return {
        status: statusCode,
        header: (name) => [headers[name]].flat()[0],
      };
    } catch (cause) {
      if (cause instanceof TmaxError) throw cause;
      throw unreachable(`${this.#registry.shown} can't be reached: ${messageOf(cause)}`, cause);
    }
  }

  #failure({ status }: Reply, what: string): TmaxError {
    const errno =
      ERRNO_OF_STATUS[status] ?? (status >= 500 || status === 408 || status === 429 ? 'EHOSTUNREACH' : 'EIO');
    const remedy = status >= 500 ? '; why is in its own log' : '';
    return new TmaxError(errno, `${this.#registry.shown} answers ${status} to ${what}${remedy}`);
  }
}

const ERRNO_OF_STATUS: Readonly<Record<number, ErrnoName>> = {
  // What was sent does not have the digest that was said.
  400: 'EBADMSG',
  401: 'EACCES',
  403: 'EACCES',
  // A registry that is read-only, as docker-registry says it.
  405: 'EROFS',
  413: 'ENOSPC',
  507: 'ENOSPC',
};

function unreachable(words: string, cause?: unknown): TmaxError {
  return new TmaxError('EHOSTUNREACH', words, { cause });
}

function tagOf({ sha256 }: PushedBlob): string {
  return `sif-${sha256}`;
}

function manifestOf({ sha256, sizeBytes, path }: PushedBlob): object {
  return {
    schemaVersion: 2,
    mediaType: MANIFEST_TYPE,
    config: { mediaType: SIF_CONFIG_TYPE, digest: `sha256:${EMPTY_SHA256}`, size: EMPTY.length },
    layers: [
      {
        mediaType: SIF_LAYER_TYPE,
        digest: `sha256:${sha256}`,
        size: sizeBytes,
        annotations: { 'org.opencontainers.image.title': basename(path) },
      },
    ],
  };
}
