/** Errors on their way between threads, where no class survives: what a `TmaxError` is made of. */

import { type ErrnoName, type ErrorLevel, TmaxError, toTmaxError } from '../errors.js';

export interface PlainError {
  readonly errno: ErrnoName;
  readonly message: string;
  readonly source: string | undefined;
  readonly level: ErrorLevel;
}

export function plainError(thrown: unknown): PlainError {
  const { errno, message, source, level } = toTmaxError(thrown, 'hub');
  return { errno, message, source, level };
}

export function fromPlainError({ errno, message, source = 'hub', level }: PlainError): TmaxError {
  return new TmaxError(errno, message, { source, level });
}
