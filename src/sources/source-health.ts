/**
 * How a source has answered of late, and whether it is worth asking: a circuit breaker. One that keeps failing, or keeps bringing wrong
 * bytes, is left alone, so that it costs nobody else its deadlines; from time to time one fetch is let through to see whether that has changed
 * (a trial), and while that is under way nobody else is.
 *
 * It judges whole fetches, of the main thread. Single requests are held back by the `RateGovernor`, in all threads.
 */

import { FAILURES_TO_LEAVE_ALONE, FIRST_LEAVE_MS, MAX_LEAVE_MS } from './limits.js';
import type { Patience } from './patience.js';

/** For `status` and metrics. */
export interface HealthReport {
  /** It is passed over but for a fetch now and then, to see whether it is well again. */
  readonly isLeftAlone: boolean;
  /** Until the next such fetch; 0 where it is not left alone, or one is due or under way. */
  readonly leftAloneMs: number;
  /** Fetches that failed or brought wrong bytes since the last good one. */
  readonly failuresInARow: number;
  /** Since the start: fetches that it brought a blob to, those that it had none for, and those that it brought something else to. */
  readonly brought: number;
  readonly refused: number;
  readonly wrongAnswers: number;
  readonly lastFailure: { readonly at: Date; readonly message: string } | undefined;
}

export class SourceHealth {
  readonly #now: () => number;
  #failuresInARow = 0;
  #brought = 0;
  #refused = 0;
  #wrongAnswers = 0;
  #leaveMs = FIRST_LEAVE_MS;
  /** When the next fetch may try it, while it is left alone. */
  #nextTryAtMs: number | undefined;
  /** When the trial that is under way began. */
  #trialAtMs: number | undefined;
  #lastFailure: HealthReport['lastFailure'];

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /**
   * How a fetch that can ask another source may ask this one now; undefined: not at all. A trial is for one fetch, which tells by
   * `trialEnds` that it is over; of one that takes longer than `MAX_LEAVE_MS` others do not wait for the end.
   */
  admits(): 'brief' | 'trial' | undefined {
    const now = this.#now();
    if (this.#nextTryAtMs === undefined) return 'brief';
    if (now < this.#nextTryAtMs) return undefined;
    if (this.#trialAtMs !== undefined && now < this.#trialAtMs + MAX_LEAVE_MS) return undefined;
    this.#trialAtMs = now;
    return 'trial';
  }

  /** Whatever has come of it. One that was called off has shown nothing: it is left alone for as long as before. */
  trialEnds(): void {
    const now = this.#now();
    this.#trialAtMs = undefined;
    if (this.#nextTryAtMs !== undefined && this.#nextTryAtMs <= now) this.#nextTryAtMs = now + this.#leaveMs;
  }

  /** It has brought a blob. */
  brought(): void {
    this.#brought += 1;
    this.#isWell();
  }

  /** It has said that it does not have the blob, or does not give it away. */
  refused(): void {
    this.#refused += 1;
    this.#isWell();
  }

  #isWell(): void {
    this.#failuresInARow = 0;
    this.#leaveMs = FIRST_LEAVE_MS;
    this.#nextTryAtMs = undefined;
  }

  /** Nothing came of a fetch that asked it so. Where nobody else could be asked, that is no reason to leave it alone. */
  failed(message: string, patience: Patience): void {
    this.#failuresInARow += 1;
    this.#lastFailure = { at: new Date(), message };
    if (patience === 'patient') return;
    const isLeftAlone = this.#nextTryAtMs !== undefined;
    // Those that fail while it is left alone had begun before, but for the trial.
    if (isLeftAlone ? patience !== 'trial' : this.#failuresInARow < FAILURES_TO_LEAVE_ALONE) return;
    if (isLeftAlone) this.#leaveMs = Math.min(MAX_LEAVE_MS, this.#leaveMs * 2);
    this.#nextTryAtMs = this.#now() + this.#leaveMs;
  }

  /** What came was something else than the blob. */
  lied(message: string, patience: Patience): void {
    this.#wrongAnswers += 1;
    this.failed(message, patience);
  }

  report(): HealthReport {
    const next = this.#nextTryAtMs;
    return {
      isLeftAlone: next !== undefined,
      leftAloneMs: next === undefined ? 0 : Math.max(0, next - this.#now()),
      failuresInARow: this.#failuresInARow,
      brought: this.#brought,
      refused: this.#refused,
      wrongAnswers: this.#wrongAnswers,
      lastFailure: this.#lastFailure,
    };
  }
}
