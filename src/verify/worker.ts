/** What runs in a verification thread. Errors are answers here: a class does not survive the way between threads. */

import { type ErrnoName, type ErrorLevel, toTmaxError } from '../errors.js';
import { workBehind } from '../scheduling.js';
import { type GrowingFile, NotThereYet } from './image-file.js';
import type { RefusedVerdict, VerifyLevel } from './verdict.js';
import {
  type DataPlan,
  type Expectation,
  type FormProof,
  proveForm,
  proveGrowingForm,
  provePlannedData,
} from './verify.js';

workBehind();

/** How often a thread looks whether its task is still wanted. */
const ABORT_POLL_MS = 20;

/** One step of a proof. `aborted` is shared with the caller; its first element is 1 once the answer is no longer wanted. */
export type VerifyTask =
  | {
      readonly kind: 'form';
      readonly path: string;
      readonly expectation: Expectation;
      readonly level: VerifyLevel;
      readonly aborted: Int32Array<SharedArrayBuffer>;
    }
  | {
      readonly kind: 'growing-form';
      readonly path: string;
      readonly growing: GrowingFile;
      readonly level: VerifyLevel;
      readonly aborted: Int32Array<SharedArrayBuffer>;
    }
  | { readonly kind: 'data'; readonly plan: DataPlan; readonly aborted: Int32Array<SharedArrayBuffer> };

export type VerifyAnswer =
  | { readonly kind: 'form'; readonly proof: FormProof }
  /** More of the file is needed. */
  | { readonly kind: 'not-there-yet' }
  | { readonly kind: 'data'; readonly refused: RefusedVerdict | undefined }
  | { readonly kind: 'error'; readonly errno: ErrnoName; readonly message: string; readonly level: ErrorLevel };

export default async function verifyInThread(task: VerifyTask): Promise<VerifyAnswer> {
  const controller = new AbortController();
  const poll = (): void => {
    if (Atomics.load(task.aborted, 0) === 1) controller.abort();
  };
  poll();
  const timer = setInterval(poll, ABORT_POLL_MS);
  const options = { signal: controller.signal };
  try {
    if (task.kind === 'data') return { kind: 'data', refused: await provePlannedData(task.plan, options) };
    if (task.kind === 'growing-form') {
      return { kind: 'form', proof: await proveGrowingForm(task.path, task.growing, task.level, options) };
    }
    return { kind: 'form', proof: await proveForm(task.path, task.expectation, task.level, options) };
  } catch (thrown) {
    if (thrown instanceof NotThereYet) return { kind: 'not-there-yet' };
    const error = toTmaxError(thrown, 'verify');
    return { kind: 'error', errno: error.errno, message: error.message, level: error.level };
  } finally {
    clearInterval(timer);
  }
}
