/** What runs in a verification thread. Errors are answers here: a class does not survive the way between threads. */

import { type ErrnoName, type ErrorLevel, toTmaxError } from '../errors.js';
import type { Verdict, VerifyLevel } from './verdict.js';
import { type Expectation, verifyImage } from './verify.js';

/** How often a thread looks whether its task is still wanted. */
const ABORT_POLL_MS = 20;

export interface VerifyTask {
  readonly path: string;
  readonly expectation: Expectation;
  readonly level: VerifyLevel;
  /** Shared with the caller; its first element is 1 once the answer is no longer wanted. */
  readonly aborted: Int32Array<SharedArrayBuffer>;
}

export type VerifyAnswer =
  | { readonly kind: 'verdict'; readonly verdict: Verdict }
  | { readonly kind: 'error'; readonly errno: ErrnoName; readonly message: string; readonly level: ErrorLevel };

export default async function verifyInThread(task: VerifyTask): Promise<VerifyAnswer> {
  const { aborted, expectation, level, path } = task;
  const controller = new AbortController();
  const poll = (): void => {
    if (Atomics.load(aborted, 0) === 1) controller.abort();
  };
  poll();
  const timer = setInterval(poll, ABORT_POLL_MS);
  try {
    return { kind: 'verdict', verdict: await verifyImage(path, expectation, level, { signal: controller.signal }) };
  } catch (thrown) {
    const error = toTmaxError(thrown, 'verify');
    return { kind: 'error', errno: error.errno, message: error.message, level: error.level };
  } finally {
    clearInterval(timer);
  }
}
