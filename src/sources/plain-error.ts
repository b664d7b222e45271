/** Errors on their way between threads, where no class survives: what a `TmaxError` is made of. */

import { type ErrnoName, type ErrorLevel, TmaxError, toTmaxError } from '../errors.js';
import { AbsentBlob } from './failure.js';

export interface PlainError {
  readonly errno: ErrnoName;
  readonly message: string;
  readonly source: string;
  readonly level: ErrorLevel;
  /** Of an `AbsentBlob`. */
  readonly isAbsence: boolean;
}

/** `source`: where it arose, unless it says so itself. */
export function plainError(thrown: unknown, source: string): PlainError {
  const error = toTmaxError(thrown, source);
  const { errno, message, level } = error;
  return { errno, message, source: error.source ?? source, level, isAbsence: thrown instanceof AbsentBlob };
}

export function fromPlainError({ errno, message, source, level, isAbsence }: PlainError): TmaxError {
  const options = { source, level };
  return isAbsence ? new AbsentBlob(message, options) : new TmaxError(errno, message, options);
}
