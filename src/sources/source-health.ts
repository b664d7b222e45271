/**
 * How a source has answered of late, and whether it is worth asking: a circuit breaker. One that keeps failing, or keeps bringing wrong
 * bytes, is left alone, so that it costs nobody else its deadlines; from time to time one fetch is let through to see whether that has changed.
 *
 * It judges whole fetches, of the main thread. Single requests are held back by the `RateGovernor`, in all threads.
 */

import { FAILURES_TO_LEAVE_ALONE, FIRST_LEAVE_MS, MAX_LEAVE_MS } from './limits.js';

/** For `status` and metrics. */
export interface HealthReport {
  /** It is passed over but for a fetch now and then, to see whether it is well again. */
  readonly isLeftAlone: boolean;
  /** Until the next such fetch; 0 where it is not left alone, or one is due. */
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
  /** Such a fetch is on its way; others that fail meanwhile had begun before. */
  #isTried = false;
  #lastFailure: HealthReport['lastFailure'];

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Whether a fetch may ask it now. A yes while it is left alone is for one fetch: others have to wait for the next try. */
  admits(): boolean {
    if (this.#nextTryAtMs === undefined) return true;
    if (this.#now() < this.#nextTryAtMs) return false;
    this.#isTried = true;
    this.#nextTryAtMs = this.#now() + this.#leaveMs;
    return true;
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
    this.#isTried = false;
  }

  /** Nothing came of a fetch. `mayBeLeftAlone`: another source can be asked. */
  failed(message: string, mayBeLeftAlone: boolean): void {
    this.#failuresInARow += 1;
    this.#lastFailure = { at: new Date(), message };
    if (!mayBeLeftAlone) return;
    const isLeftAlone = this.#nextTryAtMs !== undefined;
    if (isLeftAlone ? !this.#isTried : this.#failuresInARow < FAILURES_TO_LEAVE_ALONE) return;
    if (isLeftAlone) this.#leaveMs = Math.min(MAX_LEAVE_MS, this.#leaveMs * 2);
    this.#isTried = false;
    this.#nextTryAtMs = this.#now() + this.#leaveMs;
  }

  /** What came was something else than the blob. */
  lied(message: string, mayBeLeftAlone: boolean): void {
    this.#wrongAnswers += 1;
    this.failed(message, mayBeLeftAlone);
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
