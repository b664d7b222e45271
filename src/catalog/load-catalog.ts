/**
 * From a revision to a catalog: resolve it to a commit, take that commit's catalog from the disk or else from the Hub.
 * Everything is pinned to the one commit, so a branch that moves in between can't mix two trees.
 */

import type { Logger } from 'pino';
import { messageOf, TmaxError, toTmaxError } from '../errors.js';
import { askForSources, type CatalogOrigin } from './ask-for-sources.js';
import { buildCatalog, type CatalogChoice, chooseForm, formsOf } from './build-catalog.js';
import type { Catalog, CatalogKind, CatalogSources } from './catalog.js';
import type { CatalogStore } from './catalog-store.js';
import type { NameTemplate } from './name-template.js';

export type { CatalogOrigin } from './ask-for-sources.js';

/** Left-out names that are logged one by one; coverage names them all. */
const MAX_LOGGED_PROBLEMS = 10;

/** Variants and folders that are: any repository may have one for each image. */
const MAX_LOGGED_NAMES = 20;

/** How long a start with a known commit waits for the Hub to say that there is a newer one. */
const PATIENCE_MS = 5000;

const COMMIT = /^[0-9a-f]{40}$/;

export interface LoadCatalogOptions {
  readonly repository: string;
  /** Branch, tag or 40-hex commit. */
  readonly revision: string;
  /** What says which tasks there are; default: `auto`. */
  readonly choice?: CatalogChoice | undefined;
  /** How files are named from the rows of a manifest. */
  readonly naming?: NameTemplate | undefined;
  /** Undefined when offline. */
  readonly origin: CatalogOrigin | undefined;
  readonly store: CatalogStore;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Told why what is shown is not what the revision stands for now. */
  readonly onOutdated?: (failure: { readonly errno: string; readonly message: string }) => void;
}

/**
 * The catalog to begin with. Where the Hub does not answer, or a branch has moved to a commit that is no pool, the commit
 * that the branch last stood for is good enough, if its catalog is on disk.
 * Errors: those of the origin where the disk can't help; EHOSTUNREACH offline and not on disk; EBADMSG unusable files.
 */
export async function loadCatalog(options: LoadCatalogOptions): Promise<Catalog> {
  const { repository, revision, store, log } = options;
  const lastCommit = COMMIT.test(revision) ? undefined : await store.lastCommit(repository, revision);
  const resolving = resolve(options, lastCommit);
  // Most often a branch still is what it was: its catalog is read while the Hub answers. What keeps it from being read comes up
  // again where it is needed.
  const [resolved, ahead] = await Promise.all([resolving, builtFromDisk(options, lastCommit).catch(() => undefined)]);
  try {
    return await catalogAt(options, resolved, undefined, ahead);
  } catch (error) {
    const last = lastCommit === resolved.commit ? undefined : await stored(options, lastCommit);
    if (last === undefined || options.signal.aborted || !(isUnusable(error) || isUnreachable(error))) throw error;
    const reason = messageOf(error);
    options.onOutdated?.({ errno: toTmaxError(error, 'catalog').errno, message: reason });
    log.error(
      { repository, revision, commit: resolved.commit, reason },
      `${repository}@${revision} now is a commit that can't be shown; going on with ${last.commit}, which it was before`,
    );
    return last;
  }
}

/**
 * The catalog of what the revision stands for now, or `current` itself where that has not changed. Nothing is made up for:
 * what can't be had or used is an error, so that the caller keeps what it has.
 * Errors: as `loadCatalog`; EBADMSG also for a catalog without a single image.
 */
export async function reloadCatalog(options: LoadCatalogOptions, current: Catalog): Promise<Catalog> {
  const { repository, revision, origin, signal } = options;
  if (COMMIT.test(revision)) return current;
  if (origin === undefined) {
    const message = `offline: ${repository}@${revision} can't be resolved anew; the catalog stays as it is`;
    throw new TmaxError('EHOSTUNREACH', message, { source: 'catalog' });
  }
  const resolved = await origin.resolveRevision(repository, revision, signal);
  return resolved.commit === current.commit ? current : catalogAt(options, resolved, current.kind);
}

/**
 * The commit's catalog, from the disk or else from the Hub; remembered as what the revision stands for once it is good.
 * `before`: what is shown until then; undefined: what the revision last stood for, if that is known. `ahead`: a catalog that was
 * read from the disk already, of this commit or of another.
 */
async function catalogAt(
  options: LoadCatalogOptions,
  { commit, date }: { readonly commit: string; readonly date?: Date },
  before?: CatalogKind,
  ahead?: Catalog,
): Promise<Catalog> {
  const { repository, revision, choice = 'auto', origin, store, log, signal } = options;
  let catalog = await stored(options, commit, ahead);
  if (catalog === undefined) {
    if (origin === undefined) {
      const which = choice === 'auto' ? 'the catalog' : `the ${choice}`;
      throw new TmaxError(
        'EHOSTUNREACH',
        `offline, and ${which} of ${repository}@${revision} (${commit}) is not on this disk; mount once with the network`,
        { source: 'catalog', level: 'error' },
      );
    }
    const sources = await askForSources(origin, {
      ...{ repository, commit, choice, signal },
      date: date ?? (await commitDate(options, origin, commit)),
      before: before ?? (await storedSources(options, await store.lastCommit(repository, revision)))?.kind,
    });
    catalog = build(options, sources);
    if (catalog.blobs.size === 0) {
      const message = `${repository}@${commit} names no image that could be opened`;
      throw new TmaxError('EBADMSG', message, { source: 'catalog', level: 'error' });
    }
    await store.save(sources);
    report(catalog, log, 'the Hub');
  }
  if (origin !== undefined && !COMMIT.test(revision)) await store.rememberCommit(repository, revision, commit);
  return catalog;
}

async function stored(
  options: LoadCatalogOptions,
  commit: string | undefined,
  ahead?: Catalog,
): Promise<Catalog | undefined> {
  const catalog = ahead?.commit === commit ? ahead : await builtFromDisk(options, commit);
  if (catalog !== undefined) report(catalog, options.log, 'the local disk');
  return catalog;
}

async function builtFromDisk(options: LoadCatalogOptions, commit: string | undefined): Promise<Catalog | undefined> {
  const sources = await storedSources(options, commit);
  return sources === undefined ? undefined : build(options, sources);
}

/** Of the kind that is chosen; what was saved of another kind tells by its listing which one the commit has. */
async function storedSources(
  { repository, choice = 'auto', store }: LoadCatalogOptions,
  commit: string | undefined,
): Promise<CatalogSources | undefined> {
  if (commit === undefined) return undefined;
  for (const { kind } of formsOf(choice)) {
    const sources = await store.load(repository, commit, kind);
    if (sources !== undefined && chooseForm(sources.listing, choice)?.kind === kind) return sources;
  }
  return undefined;
}

/** Errors: those of `buildCatalog`; EINVAL a template for a catalog without rows. */
function build({ naming }: LoadCatalogOptions, sources: CatalogSources): Catalog {
  if (naming === undefined || sources.kind === 'manifest') return buildCatalog(sources, naming);
  const message = `--name takes fields from the rows of a manifest, and ${sources.repository} is shown by its ${sources.kind}`;
  throw new TmaxError('EINVAL', message, { source: 'catalog', level: 'error' });
}

/** What the commit holds is at fault, not the way to it. */
function isUnusable(error: unknown): boolean {
  return error instanceof TmaxError && (error.errno === 'EBADMSG' || error.errno === 'ENOENT');
}

/** The commit, with its date where it was asked for on the way. */
async function resolve(
  options: LoadCatalogOptions,
  lastCommit: string | undefined,
): Promise<{ commit: string; date?: Date }> {
  const { repository, revision, origin, log, signal } = options;
  if (COMMIT.test(revision)) return { commit: revision };
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
    return await origin.resolveRevision(repository, revision, patience);
  } catch (error) {
    if (lastCommit === undefined || signal.aborted || !isUnreachable(error)) throw error;
    const failure = { errno: 'EHOSTUNREACH', message: unreachable(error) };
    options.onOutdated?.(failure);
    log.warn(
      { repository, revision, commit: lastCommit, reason: failure.message },
      `${repository}@${revision} can't be resolved now; going on with the commit it last stood for`,
    );
    return { commit: lastCommit };
  }
}

/** Why there was no answer. Where our own patience ended, that is what kept it waiting. */
function unreachable(error: unknown): string {
  if (!(error instanceof TmaxError) || error.errno !== 'EINTR') return messageOf(error);
  return error.cause === undefined ? `no answer within ${PATIENCE_MS / 1000} s` : messageOf(error.cause);
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
      catalog: catalog.kind,
      variants: Object.fromEntries(
        [...catalog.variants.values()].slice(0, MAX_LOGGED_NAMES).map(({ name, tasks }) => [name, tasks.size]),
      ),
      variantCount: catalog.variants.size,
      blobs: catalog.blobs.size,
      directories: catalog.directories.slice(0, MAX_LOGGED_NAMES),
      problems: catalog.problemCount,
    },
    `catalog (${catalog.kind}) of ${catalog.repository}@${catalog.commit.slice(0, 12)} read from ${from}`,
  );
}
