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
  /** Never rejects. False where the signal ended it before its time, and it is to go on later. */
  run(signal: AbortSignal): Promise<boolean>;
}

export class FetchQueue {
  readonly #maxRunning: number;
  readonly #waiting = new Set<QueuedFetch>();
  readonly #running = new Map<QueuedFetch, AbortController>();
  /** Called off and not yet at their end. */
  readonly #leaving = new Set<QueuedFetch>();
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
    if (this.#waiting.delete(fetch)) return true;
    this.#running.get(fetch)?.abort();
    return false;
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
    return this.#waiting.size + this.#running.size + this.#leaving.size === 0;
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

  #start(fetch: QueuedFetch): void {
    const controller = new AbortController();
    this.#waiting.delete(fetch);
    this.#running.set(fetch, controller);
    void fetch.run(controller.signal).then((isOver) => {
      this.#running.delete(fetch);
      this.#leaving.delete(fetch);
      if (!isOver) this.#waiting.add(fetch);
      this.dispatch();
      if (this.#isIdle) for (const resolve of this.#onIdle.splice(0)) resolve();
    });
  }
}
