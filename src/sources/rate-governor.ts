/**
 * One pause for all: when the Hub says "too many requests" to one fetch, every fetch of every thread waits.
 *
 * The state is one number per kind of request (when its pause ends, in milliseconds since the epoch) in memory that
 * threads share; it only ever moves forward.
 */

/** What is counted apart: calls to the API, hits of the resolver, requests for bytes. */
export type RequestKind = 'api' | 'resolver' | 'storage';

const SLOTS: Readonly<Record<RequestKind, number>> = { api: 0, resolver: 1, storage: 2 };

export class RateGovernor {
  /** To be handed to a thread, whose governor then obeys the same pauses. */
  readonly memory: SharedArrayBuffer;
  readonly #pausedUntil: BigInt64Array;

  constructor(memory = new SharedArrayBuffer(Object.keys(SLOTS).length * BigInt64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#pausedUntil = new BigInt64Array(memory);
  }

  /** No request of this kind for so long, unless a longer pause holds already. */
  pause(kind: RequestKind, durationMs: number): void {
    const until = BigInt(Date.now() + Math.ceil(durationMs));
    const slot = SLOTS[kind];
    let current = Atomics.load(this.#pausedUntil, slot);
    while (current < until) {
      const seen = Atomics.compareExchange(this.#pausedUntil, slot, current, until);
      if (seen === current) return;
      current = seen;
    }
  }

  /** How long a request of this kind has to wait, in milliseconds; 0 to go ahead. */
  waitMs(kind: RequestKind): number {
    return Math.max(0, Number(Atomics.load(this.#pausedUntil, SLOTS[kind])) - Date.now());
  }
}
