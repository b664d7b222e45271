/**
 * Whether the main thread, with no mail left, looks on for a moment before it sleeps.
 *
 * Waking it takes longer than answering an open does, above all where its core sleeps too. So while requests come close upon each
 * other it stays awake between them; the first one that does not come in time ends that, so that what comes now and then
 * costs no more than it did, and an idle mount nothing at all.
 */

/** How long it looks on, and so the pause between requests from which on it sleeps. */
export const POLL_MS = 0.1;

export class AdaptivePolling {
  readonly #now: () => number;
  #sleepsSinceMs = Number.NEGATIVE_INFINITY;
  #isWorthIt = false;

  /** `now`: milliseconds, monotonic. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Looks on where that is worth it. True as soon as there is mail, false after `POLL_MS` at most: time to sleep. */
  poll(hasMail: () => boolean): boolean {
    if (!this.#isWorthIt) return false;
    const endsAtMs = this.#now() + POLL_MS;
    do {
      if (hasMail()) return true;
    } while (this.#now() < endsAtMs);
    this.#isWorthIt = false;
    return false;
  }

  /** It goes to sleep. */
  sleeps(): void {
    this.#sleepsSinceMs = this.#now();
  }

  /** It was woken: had it looked on as long as waking takes, it would not have had to be. */
  wakes(): void {
    this.#isWorthIt = this.#now() - this.#sleepsSinceMs <= 2 * POLL_MS;
  }
}
