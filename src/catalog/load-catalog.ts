/**
 * From a revision to a catalog: resolve it to a commit, take that commit's catalog from the disk or else from the Hub.
 * Everything is pinned to the one commit, so a branch that moves in between can't mix two trees.
 */

import type { Logger } from 'pino';
import { messageOf, TmaxError } from '../errors.js';
import type { HubClient, ListedFile as HubFile } from '../sources/hub-client.js';
import { buildCatalog, type Catalog, type CatalogSources } from './catalog.js';
import type { CatalogStore } from './catalog-store.js';

const TASK_MAP_PATH = 'task_to_blob.json';
/** The published map has 3 MB; a hundred times that is not one any more. */
const MAX_TASK_MAP_BYTES = 256 * 1024 * 1024;
/** The published listing has 16,203 files. */
const MAX_LISTED_FILES = 1_000_000;
/** Left-out names that are logged one by one; coverage names them all. */
const MAX_LOGGED_PROBLEMS = 10;

/** How long a start with a known commit waits for the Hub to say that there is a newer one. */
const PATIENCE_MS = 5000;

const COMMIT = /^[0-9a-f]{40}$/;

/** What the catalog asks of the Hub. */
export type CatalogOrigin = Pick<HubClient, 'resolveRevision' | 'listFiles' | 'readSmallFile'>;

export interface LoadCatalogOptions {
  readonly repository: string;
  /** Branch, tag or 40-hex commit. */
  readonly revision: string;
  /** Undefined when offline. */
  readonly origin: CatalogOrigin | undefined;
  readonly store: CatalogStore;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/** Errors: those of the origin where the disk can't help; EHOSTUNREACH offline and not on disk; EBADMSG unusable files. */
export async function loadCatalog(options: LoadCatalogOptions): Promise<Catalog> {
  const { repository, revision, origin, store, log, signal } = options;
  const { commit, date } = await resolve(options);
  const stored = await store.load(repository, commit);
  if (stored !== undefined) {
    const catalog = buildCatalog(stored);
    report(catalog, log, 'the local disk');
    return catalog;
  }
  if (origin === undefined) {
    throw new TmaxError(
      'EHOSTUNREACH',
      `offline, and the catalog of ${repository}@${revision} (${commit}) is not on this disk; mount once with the network`,
      { source: 'catalog', level: 'error' },
    );
  }
  const sources = await ask(origin, repository, commit, date ?? (await commitDate(options, origin, commit)), signal);
  const catalog = buildCatalog(sources);
  await store.save(sources);
  report(catalog, log, 'the Hub');
  return catalog;
}

/** The commit, with its date where it was asked for on the way. */
async function resolve(options: LoadCatalogOptions): Promise<{ commit: string; date?: Date }> {
  const { repository, revision, origin, store, log, signal } = options;
  if (COMMIT.test(revision)) return { commit: revision };
  const lastCommit = await store.lastCommit(repository, revision);
  if (origin === undefined) {
    if (lastCommit !== undefined) return { commit: lastCommit };
    throw new TmaxError(
      'EHOSTUNREACH',
      `offline, and ${repository}@${revision} was never resolved on this disk; mount once with the network`,
      { source: 'catalog', level: 'error' },
    );
  }
  // With a commit to fall back to, a Hub that does not answer is not waited for at length.
  const patience = lastCommit === undefined ? signal : AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]);
  try {
    const resolved = await origin.resolveRevision(repository, revision, patience);
    await store.rememberCommit(repository, revision, resolved.commit);
    return resolved;
  } catch (error) {
    if (lastCommit === undefined || signal.aborted || !isUnreachable(error)) throw error;
    log.warn(
      { repository, revision, commit: lastCommit, reason: messageOf(error) },
      `${repository}@${revision} can't be resolved now; going on with the commit it last stood for`,
    );
    return { commit: lastCommit };
  }
}

/** No answer, in whatever form; EINTR is the end of our own patience. */
function isUnreachable(error: unknown): boolean {
  return error instanceof TmaxError && ['EHOSTUNREACH', 'ETIMEDOUT', 'EINTR'].includes(error.errno);
}

async function commitDate(options: LoadCatalogOptions, origin: CatalogOrigin, commit: string): Promise<Date> {
  const resolved = await origin.resolveRevision(options.repository, commit, options.signal);
  if (resolved.commit === commit) return resolved.date;
  throw new TmaxError('EBADMSG', `${options.repository}: the Hub resolves the commit ${commit} to ${resolved.commit}`, {
    source: 'catalog',
    level: 'error',
  });
}

async function ask(
  origin: CatalogOrigin,
  repository: string,
  commit: string,
  date: Date,
  signal: AbortSignal,
): Promise<CatalogSources> {
  const listing = await collect(origin.listFiles(repository, commit, { signal }), repository);
  const expected = listing.find(({ path }) => path === TASK_MAP_PATH);
  if (expected === undefined) {
    throw new TmaxError('ENOENT', `${repository}@${commit} has no ${TASK_MAP_PATH}: it is no pool of this form`, {
      source: 'catalog',
      level: 'error',
    });
  }
  const taskMap = await origin.readSmallFile(repository, commit, TASK_MAP_PATH, {
    maxBytes: MAX_TASK_MAP_BYTES,
    signal,
    expected,
  });
  return {
    repository,
    commit,
    date,
    taskMap: taskMap.toString('utf8'),
    listing: listing.map(({ path, sizeBytes, sha256 }) => ({ path, sizeBytes, sha256 })),
  };
}

async function collect(files: AsyncIterable<HubFile>, repository: string): Promise<HubFile[]> {
  const listing: HubFile[] = [];
  for await (const file of files) {
    if (listing.length >= MAX_LISTED_FILES) {
      throw new TmaxError('EBADMSG', `the listing of ${repository} has more than ${MAX_LISTED_FILES} files`, {
        source: 'catalog',
        level: 'error',
      });
    }
    listing.push(file);
  }
  return listing;
}

function report(catalog: Catalog, log: Logger, from: string): void {
  for (const problem of catalog.problems.slice(0, MAX_LOGGED_PROBLEMS)) {
    log.warn(problem, `catalog: ${problem.subject} left out: ${problem.reason}`);
  }
  if (catalog.problemCount > MAX_LOGGED_PROBLEMS) {
    log.warn({ problems: catalog.problemCount }, 'catalog: more was left out; `tmaxfs coverage` names all of it');
  }
  log.info(
    {
      repository: catalog.repository,
      commit: catalog.commit,
      variants: Object.fromEntries([...catalog.variants.values()].map((variant) => [variant.name, variant.tasks.size])),
      blobs: catalog.blobs.size,
      directories: catalog.directories,
      problems: catalog.problemCount,
    },
    `catalog of ${catalog.repository}@${catalog.commit.slice(0, 12)} read from ${from}`,
  );
}
