/**
 * Keeps the tree at the commit that the revision stands for: looks when it is asked to, from time to time if it is to
 * follow, and once more after a start that had no answer, as soon as there is one. A new catalog is shown as a whole, or not at all: whatever goes wrong on the way, the one that is shown stays.
 */

import type { Logger } from 'pino';
import type { Catalog } from '../catalog/catalog.js';
import { messageOf, toTmaxError } from '../errors.js';
import { type LongTimer, startLongTimer } from '../long-timer.js';

export interface CatalogFollowerOptions {
  /** Shown already. */
  readonly catalog: Catalog;
  /** Why that is not what the revision stands for now. */
  readonly failure?: { readonly errno: string; readonly message: string } | undefined;
  /** The catalog of now, `current` itself where nothing has changed. Throws where there is none that could be shown. */
  readonly load: (current: Catalog, signal: AbortSignal) => Promise<Catalog>;
  /** Puts a new one in the place of the old, in this very turn. */
  readonly show: (catalog: Catalog) => void;
  /** From the end of one look to the next; undefined: only when asked. */
  readonly intervalMs: number | undefined;
  /** From one look to the next after a start that nobody answered. */
  readonly catchUpMs?: number;
  readonly log: Logger;
}

/** A Hub that could not be reached at the start is asked this often until it answers. */
const CATCH_UP_MS = 60_000;

export interface FollowReport {
  readonly intervalSeconds: number | null;
  /** When it was last looked, and when something had changed; ISO 8601. */
  readonly checkedAt: string | null;
  readonly changedAt: string | null;
  /** Why the last look has led to nothing, if it has not. */
  readonly failure: { readonly at: string; readonly errno: string; readonly message: string } | null;
}

export class CatalogFollower {
  readonly #options: CatalogFollowerOptions;
  readonly #closing = new AbortController();
  #catalog: Catalog;
  #looking: Promise<Catalog> | undefined;
  #timer: LongTimer | undefined;
  #checkedAt: string | null = null;
  #changedAt: string | null = null;
  #failure: FollowReport['failure'] = null;
  /** The revision was not resolved at the start, for want of an answer. */
  #isUnresolved = false;

  constructor(options: CatalogFollowerOptions) {
    this.#options = options;
    this.#catalog = options.catalog;
    if (options.failure !== undefined) {
      this.#checkedAt = new Date().toISOString();
      this.#failure = { at: this.#checkedAt, ...options.failure };
      this.#isUnresolved = options.failure.errno === 'EHOSTUNREACH';
    }
    this.#schedule();
  }

  /** The one that is shown. */
  get catalog(): Catalog {
    return this.#catalog;
  }

  report(): FollowReport {
    const { intervalMs } = this.#options;
    return {
      intervalSeconds: intervalMs === undefined ? null : intervalMs / 1000,
      checkedAt: this.#checkedAt,
      changedAt: this.#changedAt,
      failure: this.#failure,
    };
  }

  /** Looks now, or joins a look that is under way. Errors: those of `load`, after which everything is as before. */
  reload(): Promise<Catalog> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
      this.#schedule();
    });
    return this.#looking;
  }

  /** As `reload`, for those who don't wait: a failure is in the log and in the report. */
  reloadQuietly(): void {
    this.reload().catch(() => undefined);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#timer?.cancel();
    await this.#looking?.catch(() => undefined);
  }

  async #look(): Promise<Catalog> {
    const { load, show, log } = this.#options;
    try {
      const catalog = await load(this.#catalog, this.#closing.signal);
      this.#checkedAt = new Date().toISOString();
      this.#failure = null;
      this.#isUnresolved = false;
      if (catalog === this.#catalog) return catalog;
      const { repository, commit } = catalog;
      show(catalog);
      log.info({ repository, commit, before: this.#catalog.commit }, 'another commit is shown from now on');
      this.#catalog = catalog;
      this.#changedAt = this.#checkedAt;
      return catalog;
    } catch (thrown) {
      if (this.#closing.signal.aborted) throw thrown;
      const { errno } = toTmaxError(thrown, 'catalog');
      const message = messageOf(thrown);
      // Whatever else is wrong, it was answered: asking again would bring the same.
      this.#isUnresolved &&= errno === 'EHOSTUNREACH';
      this.#checkedAt = new Date().toISOString();
      this.#failure = { at: this.#checkedAt, errno, message };
      log.error(
        { errno, reason: message, commit: this.#catalog.commit },
        'no newer catalog could be shown: the present one stays',
      );
      throw thrown;
    }
  }

  #schedule(): void {
    const { intervalMs = Number.POSITIVE_INFINITY, catchUpMs = CATCH_UP_MS } = this.#options;
    this.#timer?.cancel();
    const waitMs = this.#isUnresolved ? Math.min(catchUpMs, intervalMs) : intervalMs;
    if (waitMs === Number.POSITIVE_INFINITY || this.#closing.signal.aborted) return;
    this.#timer = startLongTimer(() => this.reloadQuietly(), waitMs, { ref: false });
  }
}
