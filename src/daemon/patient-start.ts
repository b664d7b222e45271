/** A start that outlasts a network that is slow to come up: it asks again where the Hub has not answered, up to a limit. */

import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf, TmaxError } from '../errors.js';

/** Between one run through the retries of a request and the next. */
const PAUSE_MS = 5_000;

export interface PatientStartOptions {
  /** Since the first try; undefined: it is tried once. */
  readonly timeoutMs: number | undefined;
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly pauseMs?: number;
}

/** What `load` brings. Errors: those of `load`, where it was answered, or the time is up; EINTR. */
export async function loadPatiently<Result>(
  load: () => Promise<Result>,
  { timeoutMs = 0, signal, log, pauseMs = PAUSE_MS }: PatientStartOptions,
): Promise<Result> {
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await load();
    } catch (error) {
      const leftMs = deadlineMs - performance.now();
      if (signal.aborted || leftMs <= 0 || !isUnanswered(error)) throw error;
      const seconds = Math.round(leftMs / 1000);
      log.warn(
        { reason: messageOf(error) },
        `no answer from the Hub yet, asking for ${seconds} s more (--start-timeout)`,
      );
      await pause(Math.min(pauseMs, leftMs), signal);
    }
  }
}

function isUnanswered(error: unknown): boolean {
  return error instanceof TmaxError && ['EHOSTUNREACH', 'ETIMEDOUT'].includes(error.errno);
}

/** Errors: EINTR. */
async function pause(durationMs: number, signal: AbortSignal): Promise<void> {
  try {
    await delay(durationMs, undefined, { signal });
  } catch (cause) {
    throw new TmaxError('EINTR', 'the start was called off', { cause, source: 'daemon' });
  }
}
