/**
 * What all fetches of all threads heed together. One pause: when the Hub says "too many requests" to one, everyone waits.
 * One circuit breaker: when nothing is answered any more, one request at a time looks whether that has changed, and the
 * others fail at once, to come back as their own retries have it.
 *
 * The state is four numbers per kind of request in memory that threads share: when its pause ends (milliseconds since
 * the epoch; only ever moved forward), failures in a row, when the next probe is due, and how often "too many" was said.
 */

import { FAILURES_TO_OPEN_CIRCUIT, PROBE_INTERVAL_MS } from './limits.js';

/** What is counted apart: calls to the API, hits of the resolver, requests for bytes. */
export type RequestKind = 'api' | 'resolver' | 'storage';

const SLOTS: Readonly<Record<RequestKind, number>> = { api: 0, resolver: 1, storage: 2 };

const KINDS = Object.keys(SLOTS).length;
/** Fields of the shared memory, one number per kind in each. */
const [PAUSED_UNTIL, FAILURES, NEXT_PROBE, TOO_MANY] = [0, KINDS, 2 * KINDS, 3 * KINDS];
const FIELDS = 4;

/** Where one kind of requests stands. */
export interface RequestState {
  readonly kind: RequestKind;
  /** How often the server has said "too many requests" (429). */
  readonly tooManyRequests: number;
  /** How much longer none are sent, because it asked for that. */
  readonly pausedMs: number;
  /** None of the last ones was answered: only one at a time is sent, to see whether that has changed. */
  readonly isUnanswered: boolean;
}

export class RateGovernor {
  /** To be handed to a thread, whose governor then obeys the same pauses. */
  readonly memory: SharedArrayBuffer;
  readonly #state: BigInt64Array;

  constructor(memory = new SharedArrayBuffer(FIELDS * KINDS * BigInt64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#state = new BigInt64Array(memory);
  }

  /** No request of this kind for so long, unless a longer pause holds already. */
  pause(kind: RequestKind, durationMs: number): void {
    this.#advance(PAUSED_UNTIL + SLOTS[kind], BigInt(Date.now() + Math.ceil(durationMs)));
  }

  /** How long a request of this kind has to wait, in milliseconds; 0 to go ahead. */
  waitMs(kind: RequestKind): number {
    return Math.max(0, Number(Atomics.load(this.#state, PAUSED_UNTIL + SLOTS[kind])) - Date.now());
  }

  /** Whether a request of this kind may be sent: always while some are answered, else once in `PROBE_INTERVAL_MS`. */
  admits(kind: RequestKind): boolean {
    if (!this.#isUnanswered(kind)) return true;
    const now = BigInt(Date.now());
    const slot = NEXT_PROBE + SLOTS[kind];
    const due = Atomics.load(this.#state, slot);
    if (due > now) return false;
    return Atomics.compareExchange(this.#state, slot, due, now + BigInt(PROBE_INTERVAL_MS)) === due;
  }

  answered(kind: RequestKind): void {
    Atomics.store(this.#state, FAILURES + SLOTS[kind], 0n);
  }

  unanswered(kind: RequestKind): void {
    Atomics.add(this.#state, FAILURES + SLOTS[kind], 1n);
  }

  /** The server has said "too many requests" to one of this kind. */
  tooMany(kind: RequestKind): void {
    Atomics.add(this.#state, TOO_MANY + SLOTS[kind], 1n);
  }

  /** For `status` and metrics; of these kinds alone, where a source has no others. */
  states(kinds = Object.keys(SLOTS) as readonly RequestKind[]): readonly RequestState[] {
    return kinds.map((kind) => ({
      kind,
      tooManyRequests: Number(Atomics.load(this.#state, TOO_MANY + SLOTS[kind])),
      pausedMs: this.waitMs(kind),
      isUnanswered: this.#isUnanswered(kind),
    }));
  }

  #isUnanswered(kind: RequestKind): boolean {
    return Atomics.load(this.#state, FAILURES + SLOTS[kind]) >= FAILURES_TO_OPEN_CIRCUIT;
  }

  #advance(slot: number, to: bigint): void {
    let current = Atomics.load(this.#state, slot);
    while (current < to) {
      const seen = Atomics.compareExchange(this.#state, slot, current, to);
      if (seen === current) return;
      current = seen;
    }
  }
}
