/**
 * The pools of a daemon: each follows its own revision, and one that can't be renewed stops no other. What they show together changes
 * as a whole, between two calls of the kernel.
 */

import type { Logger } from 'pino';
import type { Catalog, CatalogKind } from '../catalog/catalog.js';
import type { CatalogStore } from '../catalog/catalog-store.js';
import { type CatalogOrigin, loadCatalog, reloadCatalog } from '../catalog/load-catalog.js';
import { mergeCatalogs } from '../catalog/merge-catalogs.js';
import { TmaxError } from '../errors.js';
import { buildTree, type ShownPool, type Tree } from '../filesystem/tree.js';
import { CatalogFollower, type CatalogFollowerOptions, type FollowReport } from './catalog-follower.js';
import { loadPatiently } from './patient-start.js';
import { describePool, type PoolChoice } from './pool-choices.js';

/** A pool as it is shown now. */
export interface PoolReport extends Pick<PoolChoice, 'name' | 'repository' | 'revision'> {
  readonly catalog: CatalogKind;
  /** 40 hex digits. */
  readonly commit: string;
  /** ISO 8601. */
  readonly commitDate: string;
  readonly blobs: number;
  readonly problems: number;
  readonly follow: FollowReport;
}

export interface PoolsOptions {
  readonly choices: readonly PoolChoice[];
  /** Undefined when offline. */
  readonly origin: CatalogOrigin | undefined;
  readonly store: CatalogStore;
  readonly startTimeoutMs: number | undefined;
  readonly followMs: number | undefined;
  readonly log: Logger;
  /** Ends the start. */
  readonly signal: AbortSignal;
}

/** What became of one pool in a reload. */
export interface PoolReload extends Pick<PoolReport, 'name' | 'repository' | 'commit'> {
  readonly isChanged: boolean;
  /** Why the present commit stays, where that is so because another can't be shown. */
  readonly failure: TmaxError | undefined;
}

interface LoadedPool {
  readonly choice: PoolChoice;
  readonly catalog: Catalog;
  readonly outdated: CatalogFollowerOptions['failure'];
}

interface FollowedPool {
  readonly choice: PoolChoice;
  readonly follower: CatalogFollower;
}

export class Pools {
  readonly #pools: readonly FollowedPool[];
  readonly #log: Logger;
  #merged: { readonly of: readonly Catalog[]; readonly catalog: Catalog } | undefined;
  #show: ((tree: Tree) => void) | undefined;

  private constructor(loaded: readonly LoadedPool[], options: PoolsOptions) {
    this.#log = options.log;
    this.#pools = loaded.map(({ choice, catalog, outdated }) => {
      const log = logOf(options.log, choice);
      const place = placeOf(choice, { ...options, log });
      const follower = new CatalogFollower({
        catalog,
        failure: outdated,
        load: (current, signal) => reloadCatalog({ ...place, signal }, current),
        show: (next) => this.#show?.(this.#treeWith(choice, next)),
        intervalMs: options.followMs,
        log,
      });
      return { choice, follower };
    });
  }

  /**
   * Loads them all. Errors: of the first that can't be loaded those of `loadCatalog`, naming it; EINTR.
   */
  static async open(options: PoolsOptions): Promise<Pools> {
    const failed = new AbortController();
    const signal = AbortSignal.any([options.signal, failed.signal]);
    const loads = options.choices.map((choice) => load(choice, { ...options, signal }));
    try {
      return new Pools(await Promise.all(loads), options);
    } catch (error) {
      // The others are not waited for at length.
      failed.abort();
      await Promise.allSettled(loads);
      throw error;
    }
  }

  /** From now on `show` is given what replaces the present tree, in the very turn in which a catalog is replaced. */
  start(show: (tree: Tree) => void): Tree {
    this.#show = show;
    return this.#warned(buildTree(this.shown));
  }

  get shown(): readonly ShownPool[] {
    return this.#pools.map(({ choice, follower }) => ({ name: choice.name, catalog: follower.catalog }));
  }

  /** All of them in one; the same until one of them changes. */
  get catalog(): Catalog {
    const { shown } = this;
    const of = shown.map(({ catalog }) => catalog);
    if (this.#merged === undefined || this.#merged.of.some((one, index) => one !== of[index])) {
      this.#merged = { of, catalog: mergeCatalogs(shown) };
    }
    return this.#merged.catalog;
  }

  reports(): readonly PoolReport[] {
    return this.#pools.map(({ choice, follower }) => {
      const { catalog } = follower;
      return {
        name: choice.name,
        repository: catalog.repository,
        revision: choice.revision,
        catalog: catalog.kind,
        commit: catalog.commit,
        commitDate: catalog.date.toISOString(),
        blobs: catalog.blobs.size,
        problems: catalog.problemCount,
        follow: follower.report(),
      };
    });
  }

  /** Of the first pool that could not be renewed, else of the first. */
  follow(): FollowReport {
    const reports = this.#pools.map(({ follower }) => follower.report());
    const [first] = [...reports.filter(({ failure }) => failure !== null), ...reports];
    if (first === undefined) throw new RangeError('no pool');
    return first;
  }

  /** Looks for newer commits of all of them. Errors: where none could be looked up, those of the first. */
  async reload(): Promise<readonly PoolReload[]> {
    const reloads = await Promise.all(this.#pools.map(reloadOne));
    const [first] = reloads;
    if (first?.failure !== undefined && reloads.every(({ failure }) => failure !== undefined)) throw first.failure;
    return reloads;
  }

  /** As `reload`, for those who don't wait: a failure is in the log and in the reports. */
  reloadQuietly(): void {
    for (const { follower } of this.#pools) follower.reloadQuietly();
  }

  async close(): Promise<void> {
    await Promise.all(this.#pools.map(({ follower }) => follower.close()));
  }

  #treeWith(changed: PoolChoice, next: Catalog): Tree {
    const pools = this.shown.map((pool) => (pool.name === changed.name ? { ...pool, catalog: next } : pool));
    return this.#warned(buildTree(pools));
  }

  #warned(tree: Tree): Tree {
    for (const warning of tree.warnings) this.#log.warn(warning);
    return tree;
  }
}

async function load(choice: PoolChoice, options: PoolsOptions): Promise<LoadedPool> {
  const { startTimeoutMs: timeoutMs, signal } = options;
  const log = logOf(options.log, choice);
  const place = placeOf(choice, { ...options, log });
  let outdated: CatalogFollowerOptions['failure'];
  const onOutdated = (failure: NonNullable<typeof outdated>) => {
    outdated = failure;
  };
  try {
    const catalog = await loadPatiently(() => loadCatalog({ ...place, signal, onOutdated }), {
      timeoutMs,
      signal,
      log,
    });
    return { choice, catalog, outdated };
  } catch (cause) {
    if (choice.name === '' || !(cause instanceof TmaxError)) throw cause;
    const message = `the pool "${choice.name}" (${describePool(choice)}) can't be shown: ${cause.message}`;
    throw new TmaxError(cause.errno, message, { cause, source: 'catalog', level: cause.level });
  }
}

async function reloadOne({ choice, follower }: FollowedPool): Promise<PoolReload> {
  const before = follower.catalog;
  let failure: TmaxError | undefined;
  try {
    await follower.reload();
  } catch (error) {
    if (!(error instanceof TmaxError)) throw error;
    failure = error;
  }
  const { repository, commit } = follower.catalog;
  return { name: choice.name, repository, commit, isChanged: commit !== before.commit, failure };
}

function placeOf({ repository, revision, catalog, naming }: PoolChoice, { origin, store, log }: PoolsOptions) {
  return { repository, revision, choice: catalog, naming, origin, store, log };
}

function logOf(log: Logger, { name }: PoolChoice): Logger {
  return name === '' ? log : log.child({ pool: name });
}
