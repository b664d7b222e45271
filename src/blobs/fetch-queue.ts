/**
 * Which fetch goes next: those that opens wait for before all others, most waiters first, then in order of arrival.
 *
 * A fetch that somebody waits for waits only for others of its kind. Where all places are taken, a running one that
 * nobody waits for gives way at once: it is called off, keeps what it has on disk, and goes on when a place is free.
 */

export interface QueuedFetch {
  /** Opens that wait for it at this moment. */
  readonly waiterCount: number;
  /** Whether it could be called off and go on later. Not while it is proven or published: that is soon over. */
  readonly mayGiveWay: boolean;
  /** Never rejects. */
  run(signal: AbortSignal): Promise<RunOutcome>;
}

/**
 * `over`: it has ended. `later`: it gave way, or was called off before its time, and goes on when there is a place for it, but
 * not before `afterMs`.
 */
export type RunOutcome = { readonly kind: 'over' } | { readonly kind: 'later'; readonly afterMs: number };

export class FetchQueue {
  readonly #maxRunning: number;
  readonly #waiting = new Set<QueuedFetch>();
  readonly #running = new Map<QueuedFetch, AbortController>();
  /** Called off and not yet at their end. */
  readonly #leaving = new Set<QueuedFetch>();
  /** Without a place until their time has come. */
  readonly #parked = new Map<QueuedFetch, NodeJS.Timeout>();
  readonly #onIdle: (() => void)[] = [];

  constructor(maxRunning: number) {
    this.#maxRunning = maxRunning;
  }

  add(fetch: QueuedFetch): void {
    this.#waiting.add(fetch);
    this.dispatch();
  }

  /** Takes out a fetch that nobody wants any more. True where it was not running, and so won't report its end itself. */
  cancel(fetch: QueuedFetch): boolean {
    clearTimeout(this.#parked.get(fetch));
    if (this.#waiting.delete(fetch) || this.#parked.delete(fetch)) {
      this.#tellIfIdle();
      return true;
    }
    this.#running.get(fetch)?.abort();
    return false;
  }

  /** Calls off a running fetch that is to begin anew, by what is known of it now: it says `later`. */
  restart(fetch: QueuedFetch): void {
    this.#running.get(fetch)?.abort();
  }

  /** To be called whenever a fetch has got a waiter. */
  dispatch(): void {
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      if (this.#running.size >= this.#maxRunning) this.#callOff();
      this.#start(next);
    }
  }

  /** Resolves once nothing runs and nothing waits. */
  async idle(): Promise<void> {
    if (this.#isIdle) return;
    await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  get #isIdle(): boolean {
    return this.#waiting.size + this.#running.size + this.#leaving.size + this.#parked.size === 0;
  }

  /** The fetch to be started now, if there is one. */
  #next(): QueuedFetch | undefined {
    let first: QueuedFetch | undefined;
    for (const fetch of this.#waiting) {
      if (first === undefined || fetch.waiterCount > first.waiterCount) first = fetch;
    }
    if (first === undefined || this.#running.size < this.#maxRunning) return first;
    if (first.waiterCount === 0) return undefined;
    const waitedFor = [...this.#running.keys()].filter(({ waiterCount }) => waiterCount > 0);
    return waitedFor.length < this.#maxRunning ? first : undefined;
  }

  /** Of those that nobody waits for, the one that began last: it has least to lose. */
  #callOff(): void {
    const victim = [...this.#running.keys()].findLast(({ waiterCount, mayGiveWay }) => waiterCount === 0 && mayGiveWay);
    if (victim === undefined) return;
    this.#running.get(victim)?.abort();
    this.#running.delete(victim);
    this.#leaving.add(victim);
  }

  #park(fetch: QueuedFetch, afterMs: number): void {
    if (afterMs === 0) {
      this.#waiting.add(fetch);
      return;
    }
    const comeBack = () => {
      this.#parked.delete(fetch);
      this.add(fetch);
    };
    this.#parked.set(fetch, setTimeout(comeBack, afterMs));
  }

  #start(fetch: QueuedFetch): void {
    const controller = new AbortController();
    this.#waiting.delete(fetch);
    this.#running.set(fetch, controller);
    void fetch.run(controller.signal).then((outcome) => {
      this.#running.delete(fetch);
      this.#leaving.delete(fetch);
      if (outcome.kind === 'later') this.#park(fetch, outcome.afterMs);
      this.dispatch();
      this.#tellIfIdle();
    });
  }

  #tellIfIdle(): void {
    if (this.#isIdle) for (const resolve of this.#onIdle.splice(0)) resolve();
  }
}
