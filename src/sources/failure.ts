/** An attempt that failed in a way that the next may not. Never leaves the room: retries end in a plain `TmaxError`. */

import { type ErrnoName, TmaxError, type TmaxErrorOptions } from '../errors.js';

export interface TransientOptions extends TmaxErrorOptions {
  /** The server asked not to be asked again before so many milliseconds have passed. */
  readonly retryAfterMs?: number;
  /** The URL was at fault, not its server: a fresh one may be tried at once. */
  readonly staleUrl?: boolean;
}

/** Its errno and message are those of the final error, should every attempt fail like this one. */
export class TransientFailure extends TmaxError {
  readonly retryAfterMs: number | undefined;
  readonly staleUrl: boolean;

  constructor(
    errno: ErrnoName,
    message: string,
    { retryAfterMs, staleUrl = false, ...options }: TransientOptions = {},
  ) {
    super(errno, message, options);
    this.retryAfterMs = retryAfterMs;
    this.staleUrl = staleUrl;
  }
}

/** The source answers, and does not have the blob: final, and nothing to be held against its health. */
export class AbsentBlob extends TmaxError {
  constructor(message: string, options: TmaxErrorOptions = {}) {
    super('EHOSTUNREACH', message, options);
  }
}

/** The error of a wait that was called off; `cause`: the failure that it would have been tried again after. */
export function aborted(cause?: TransientFailure): TmaxError {
  return new TmaxError('EINTR', 'the transfer was called off', { cause, level: 'debug' });
}
