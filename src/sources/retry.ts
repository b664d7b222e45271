/** How often, and after what wait, something is tried again. One `Attempts` per thing that is tried. */

import { setTimeout as delay } from 'node:timers/promises';
import { counted } from '../counted.js';
import { messageOf, TmaxError } from '../errors.js';
import { aborted, TransientFailure } from './failure.js';
import { MAX_REFUSED_URLS, MAX_WRONG_ANSWERS, type RetrySettings } from './limits.js';

export interface AttemptsOptions {
  readonly settings: RetrySettings;
  readonly signal: AbortSignal;
  /** Whose failures they are, where those don't say it themselves. */
  readonly source?: string;
  /** When the budget of time began, on the clock of `performance.now()`; default: now. */
  readonly startedAt?: number;
  /** Anything that grows with progress, as a count of bytes: when it has grown, earlier failures are forgotten. */
  readonly progress?: () => number;
  /** Told of each failure that will be followed by another attempt. */
  readonly onRetry?: (failure: TransientFailure, attempt: number, waitMs: number) => void;
}

export class Attempts {
  readonly #options: AttemptsOptions;
  readonly #startedAt: number;
  #failures = 0;
  #failuresInAll = 0;
  #wrongAnswers = 0;
  #refusedUrls = 0;
  #progressAtFailure = 0;
  #lastFailure: TransientFailure | undefined;

  constructor(options: AttemptsOptions) {
    this.#options = options;
    this.#startedAt = options.startedAt ?? performance.now();
  }

  /** Repeats an action until it succeeds. Errors: as `afterFailure`. */
  async run<Result>(action: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await action();
      } catch (error) {
        await this.afterFailure(error);
      }
    }
  }

  /**
   * Waits until the next attempt is due: at once for a stale URL that is the first failure, after as long as the server
   * asked, else for a random time that may double with each failure ("full jitter").
   * Errors: what was thrown, unless it is a `TransientFailure`; the failure as a `TmaxError`, once the attempts or the
   * time are used up; EINTR aborted, with the last failure before that as its cause.
   */
  async afterFailure(thrown: unknown): Promise<void> {
    const { settings, signal, progress = () => 0, onRetry } = this.#options;
    if (signal.aborted) throw aborted(this.#lastFailure);
    if (!(thrown instanceof TransientFailure)) throw thrown;
    this.#lastFailure = thrown;
    if (progress() > this.#progressAtFailure) {
      this.#failures = 0;
      this.#wrongAnswers = 0;
    }
    this.#progressAtFailure = progress();
    this.#failures += 1;
    this.#failuresInAll += 1;
    this.#wrongAnswers = thrown.errno === 'EBADMSG' ? this.#wrongAnswers + 1 : 0;
    this.#refusedUrls = thrown.staleUrl ? this.#refusedUrls + 1 : 0;

    const waitMs = this.#waitMs(thrown);
    const elapsedMs = performance.now() - this.#startedAt;
    const spent =
      this.#failures >= settings.maxAttemptsWithoutProgress ||
      this.#failuresInAll >= (settings.maxFailures ?? Number.POSITIVE_INFINITY) ||
      this.#wrongAnswers >= MAX_WRONG_ANSWERS ||
      this.#refusedUrls >= MAX_REFUSED_URLS ||
      elapsedMs + waitMs > settings.totalBudgetMs;
    if (spent) throw this.#final(thrown, elapsedMs);
    onRetry?.(thrown, this.#failures, Math.round(waitMs));
    await pause(waitMs, signal, thrown);
  }

  #waitMs({ retryAfterMs, staleUrl }: TransientFailure): number {
    const { baseMs, maxMs, maxPauseMs } = this.#options.settings;
    if (staleUrl && this.#failures === 1) return 0;
    const ceilingMs = Math.min(maxMs, baseMs * 2 ** (this.#failures - 1));
    const jitterMs = Math.random() * ceilingMs;
    // All who were sent away come back after the same pause: spread them.
    return retryAfterMs === undefined ? jitterMs : Math.min(retryAfterMs, maxPauseMs) + Math.random() * baseMs;
  }

  #sourceOf(failure: TransientFailure): { readonly source?: string } {
    const source = failure.source ?? this.#options.source;
    return source === undefined ? {} : { source };
  }

  #final(failure: TransientFailure, elapsedMs: number): TmaxError {
    const message = `${messageOf(failure)} (given up after ${counted(this.#failures, 'attempt')} in a row, ${Math.round(elapsedMs / 1000)} s in all)`;
    return new TmaxError(failure.errno, message, {
      cause: failure,
      ...this.#sourceOf(failure),
    });
  }
}

/** Errors: EINTR aborted, because of `cause`. */
export async function pause(durationMs: number, signal: AbortSignal, cause?: TransientFailure): Promise<void> {
  try {
    await delay(durationMs, undefined, { signal });
  } catch {
    throw aborted(cause);
  }
}
