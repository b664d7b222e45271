/** What the status page shows, cut to what a page can hold. An inner document of the daemon and its page, free to change. */

import type { Status } from '../status.js';
import type { VariantCounts } from '../variant-counts.js';

/** Entries of each list. */
const MAX_SHOWN = 30;
const MAX_CALLERS = 200;
/** Counting looks at every file of the cache: not anew for every look of every page. */
const COVERAGE_AGE_MS = 15_000;

export interface Summary {
  /** Lists are cut: most waited for, or newest first. */
  readonly status: Status;
  readonly coverage: readonly VariantCounts[];
  /** Of the whole lists. */
  readonly more: {
    readonly waiting: number;
    readonly running: number;
    readonly queued: number;
    readonly bytesPerSecond: number;
    /** How many entries are not in the lists. */
    readonly fetches: number;
    readonly quarantine: number;
  };
}

export function summarize(status: Status, coverage: readonly VariantCounts[]): Summary {
  const { opens, fetches, quarantine, lastFailures } = status;
  const { running } = fetches;
  const mostWaited = [...running].sort((a, b) => b.waiters - a.waiters).slice(0, MAX_SHOWN);
  const refused = new Set(quarantine.map(({ path }) => path));
  return {
    status: {
      ...status,
      opens: { ...opens, waiting: opens.waiting.slice(0, MAX_CALLERS) },
      fetches: { ...fetches, running: mostWaited },
      quarantine: quarantine.slice(-MAX_SHOWN).reverse(),
      // What is in quarantine has its reason there.
      lastFailures: lastFailures.filter(({ path }) => !refused.has(path)).reverse(),
    },
    coverage,
    more: {
      waiting: opens.waiting.length,
      running: running.length,
      queued: running.filter(({ phase }) => phase === 'queued').length,
      bytesPerSecond: running.reduce((sum, { bytesPerSecond }) => sum + (bytesPerSecond ?? 0), 0),
      fetches: running.length - mostWaited.length,
      quarantine: Math.max(0, quarantine.length - MAX_SHOWN),
    },
  };
}

/** The same value for a while, counted once however many ask; a failure is nobody's value. */
export class AgedValue<Value> {
  readonly #make: () => Promise<Value>;
  #value: { readonly promise: Promise<Value>; readonly madeAtMs: number } | undefined;

  constructor(make: () => Promise<Value>) {
    this.#make = make;
  }

  get(nowMs = performance.now()): Promise<Value> {
    if (this.#value !== undefined && nowMs - this.#value.madeAtMs < COVERAGE_AGE_MS) return this.#value.promise;
    const promise = this.#make();
    const value = { promise, madeAtMs: nowMs };
    this.#value = value;
    promise.catch(() => {
      if (this.#value === value) this.#value = undefined;
    });
    return promise;
  }
}
