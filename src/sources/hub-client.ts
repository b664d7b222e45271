/**
 * What the catalog asks of the Hub: the commit behind a revision, the listing of a commit, one small file.
 *
 * Through the Hub's library, with a `fetch` of our own. Shapes are checked here; what they mean is for the catalog to judge.
 */

import { createHash } from 'node:crypto';
import { datasetInfo, downloadFile, listFiles } from '@huggingface/hub';
import * as v from 'valibot';
import { TmaxError } from '../errors.js';
import { TransientFailure } from './failure.js';
import { HttpClient, type HttpReply } from './http-client.js';
import { type HubFetchOptions, hubFetch } from './hub-fetch.js';
import { HubHttp } from './hub-http.js';
import { endpointText, type HubSettings } from './hub-settings.js';
import { checkCommit, checkRepository, resolveUrl } from './hub-urls.js';
import {
  MAX_INFO_BYTES,
  MAX_LISTING_ENTRIES,
  MAX_LISTING_PAGES,
  MAX_PAGE_BYTES,
  METADATA_RETRY,
  type RetrySettings,
} from './limits.js';
import { RateGovernor } from './rate-governor.js';

/** A revision, resolved. */
export interface Commit {
  /** 40 hex digits. */
  readonly commit: string;
  readonly date: Date;
}

/** A file of a listing, as the Hub states it: shape-checked, otherwise untrusted. */
export interface ListedFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** 64 hex digits; undefined for a small file outside LFS. */
  readonly sha256: string | undefined;
  /** Git's SHA-1 of what git stores: of the content, for a file outside LFS. */
  readonly gitObjectId: string | undefined;
}

export interface ReadSmallFileOptions {
  readonly maxBytes: number;
  readonly signal?: AbortSignal;
  /** What the listing says of the file: its size and digests are checked, and a mismatch is fetched anew. */
  readonly expected?: ListedFile;
}

const Oid = v.pipe(v.string(), v.regex(/^[0-9a-f]{40}$/));
const Sha256 = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));
// Whether a size makes sense is for the catalog to judge, entry by entry.
const SizeBytes = v.pipe(v.number(), v.integer(), v.minValue(0));
const Info = v.object({ sha: Oid, updatedAt: v.date() });
/** `GET /api/datasets/{name}/tree/{revision}`: https://huggingface.co/docs/hub/api */
const Entry = v.object({
  type: v.string(),
  path: v.string(),
  size: SizeBytes,
  oid: v.optional(Oid),
  lfs: v.optional(v.object({ oid: Sha256, size: SizeBytes })),
});

export class HubClient {
  readonly #client: HttpClient;
  readonly #http: HubHttp;
  readonly #settings: HubSettings;
  readonly #retry: RetrySettings;

  /** Errors: EINVAL endpoint or certificate file. */
  constructor(settings: HubSettings, retry: RetrySettings = METADATA_RETRY, governor = new RateGovernor()) {
    this.#settings = settings;
    this.#retry = retry;
    const { endpoint, token } = settings;
    this.#client = new HttpClient(settings);
    this.#http = new HubHttp({ client: this.#client, endpoint, token, governor, maxPauseMs: retry.maxPauseMs });
  }

  /**
   * The commit that a branch, a tag or a commit stands for at this moment.
   * Errors: EACCES, ENOENT, EHOSTUNREACH, EBADMSG not the answer of a Hub, EINTR, EINVAL.
   */
  async resolveRevision(repository: string, revision: string, signal?: AbortSignal): Promise<Commit> {
    checkRepository(repository);
    const fetch = this.#fetch({
      kind: 'api',
      context: { repository, revision },
      maxBytes: MAX_INFO_BYTES,
      accept: (body, reply) => requireJson(body, reply, 'an object'),
      signal,
    });
    const info = await datasetInfo({
      name: repository,
      revision,
      additionalFields: ['sha'],
      hubUrl: this.#hubUrl,
      fetch,
    });
    const { sha, updatedAt } = parse(Info, info, `the description of ${repository}`);
    return { commit: sha, date: updatedAt };
  }

  /**
   * Every file of a commit, page by page as it is consumed, directories left out.
   * Errors: as `resolveRevision`.
   */
  async *listFiles(
    repository: string,
    commit: string,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): AsyncGenerator<ListedFile, void, undefined> {
    checkRepository(repository);
    checkCommit(commit);
    let pages = 0;
    const fetch = this.#fetch({
      kind: 'api',
      context: { repository, revision: commit },
      maxBytes: MAX_PAGE_BYTES,
      signal,
      accept: (body, reply) => {
        pages += 1;
        if (pages > MAX_LISTING_PAGES) throw endless(repository);
        requireJson(body, reply, 'an array');
      },
    });
    const repo = { type: 'dataset', name: repository } as const;
    let entries = 0;
    for await (const item of listFiles({ repo, revision: commit, recursive: true, hubUrl: this.#hubUrl, fetch })) {
      entries += 1;
      if (entries > MAX_LISTING_ENTRIES) throw endless(repository);
      const { type, path, size, oid, lfs } = parse(Entry, item, `an entry in the listing of ${repository}`);
      if (type !== 'file') continue;
      yield { path, sizeBytes: lfs?.size ?? size, sha256: lfs?.oid, gitObjectId: oid };
    }
  }

  /**
   * The whole content of a file, by one hit of the resolver.
   * Errors: as `resolveRevision`; EBADMSG also for a file that is larger than allowed or, every time, not what is expected.
   */
  async readSmallFile(
    repository: string,
    commit: string,
    path: string,
    { maxBytes, signal, expected }: ReadSmallFileOptions,
  ): Promise<Buffer> {
    const url = resolveUrl(this.#http.endpoint, repository, commit, path).href;
    const fetch = this.#fetch({
      kind: 'resolver',
      context: { repository, revision: commit, path },
      maxBytes,
      signal,
      accept: (body, reply) => requireContent(body, reply, path, expected),
    });
    // Being told where the file is, the library neither probes for it nor builds a URL of its own, unencoded.
    const downloadInfo = { url, size: maxBytes, etag: '' };
    const repo = { type: 'dataset', name: repository } as const;
    const blob = await downloadFile({
      repo,
      path,
      revision: commit,
      xet: false,
      hubUrl: this.#hubUrl,
      downloadInfo,
      fetch,
    });
    if (blob === null) throw new TmaxError('ENOENT', `${repository} has no file ${path}`, { source: 'hub' });
    return Buffer.from(await blob.arrayBuffer());
  }

  async close(): Promise<void> {
    await this.#client.close();
  }

  get #hubUrl(): string {
    return endpointText(this.#http.endpoint);
  }

  #fetch({
    signal = new AbortController().signal,
    ...options
  }: Omit<HubFetchOptions, 'http' | 'attempts'> & { readonly signal: AbortSignal | undefined }): typeof fetch {
    const { repository, revision, path } = options.context;
    return hubFetch({
      ...options,
      http: this.#http,
      attempts: {
        source: 'hub',
        settings: this.#retry,
        signal,
        onRetry: (failure, attempt, waitMs) =>
          this.#settings.log.info({ repository, revision, path, attempt, waitMs }, `asking again: ${failure.message}`),
      },
    });
  }
}

function endless(repository: string): TmaxError {
  const limits = `${MAX_LISTING_PAGES} pages, ${MAX_LISTING_ENTRIES} entries`;
  return new TmaxError('EBADMSG', `the listing of ${repository} has no end (limits: ${limits})`, { source: 'hub' });
}

/** The right kind of JSON and nothing else: a captive portal answers 200 as well. */
function requireJson(body: Buffer, reply: HttpReply, wanted: 'an array' | 'an object'): void {
  try {
    const value: unknown = JSON.parse(body.toString());
    if (typeof value === 'object' && value !== null && Array.isArray(value) === (wanted === 'an array')) return;
  } catch {
    // Said below.
  }
  const type = (reply.header('content-type') ?? 'no type').slice(0, 60);
  const message = `an answer from the Hub's address is not ${wanted} in JSON but ${body.length} bytes of "${type}": is there a login page between?`;
  throw new TransientFailure('EBADMSG', message);
}

function requireContent(body: Buffer, reply: HttpReply, path: string, expected: ListedFile | undefined): void {
  if (expected === undefined) {
    if (!/^text\/html\b/i.test(reply.header('content-type') ?? '')) return;
    throw new TransientFailure('EBADMSG', `instead of ${path} comes a web page: is there a login page between?`);
  }
  const wrong = (what: string) => new TransientFailure('EBADMSG', `${path} arrives with another ${what} than listed`);
  if (body.length !== expected.sizeBytes) throw wrong('size');
  if (expected.sha256 !== undefined) {
    if (createHash('sha256').update(body).digest('hex') !== expected.sha256) throw wrong('sha256');
  } else if (expected.gitObjectId !== undefined) {
    const object = createHash('sha1').update(`blob ${body.length}\0`).update(body).digest('hex');
    if (object !== expected.gitObjectId) throw wrong('git object id');
  }
}

function parse<const Schema extends v.GenericSchema>(
  schema: Schema,
  value: unknown,
  what: string,
): v.InferOutput<Schema> {
  const result = v.safeParse(schema, value);
  if (result.success) return result.output;
  const [issue] = result.issues;
  const place = v.getDotPath(issue) ?? 'the whole';
  const message = `${what} is not as the Hub describes it: ${place}: expected ${issue.expected ?? 'something else'}`;
  throw new TmaxError('EBADMSG', message, { source: 'hub' });
}
