/**
 * The one error class of the project. Every failure that a caller, a log line or `status` may see is a `TmaxError`:
 * it carries the errno that the kernel gets, where it arose, and how loudly it is to be logged, so that no layer above
 * has to guess from a message.
 */

import { constants } from 'node:os';

/** Symbolic errno, as in errno(3). Only those this file system answers with. */
export type ErrnoName =
  | 'EACCES'
  | 'EBADF'
  | 'EBADMSG'
  | 'EBUSY'
  | 'EEXIST'
  | 'EHOSTUNREACH'
  | 'EINTR'
  | 'EINVAL'
  | 'EIO'
  | 'EISDIR'
  | 'ENAMETOOLONG'
  | 'ENODATA'
  | 'ENOENT'
  | 'ENOSPC'
  | 'ENOSYS'
  | 'ENOTCONN'
  | 'ENOTDIR'
  | 'ENOTSUP'
  | 'EPERM'
  | 'ERANGE'
  | 'EROFS'
  | 'ESTALE'
  | 'ETIMEDOUT';

/** How loudly an error is logged where it ends. */
export type ErrorLevel = 'debug' | 'info' | 'warn' | 'error';

export interface TmaxErrorOptions {
  /** What led to this error, kept for the log. */
  readonly cause?: unknown;
  /** Where it arose: a room ("verify", "cache", "kernel") or the name of a source of bytes ("hub"). */
  readonly source?: string;
  /** How loudly it is logged where it ends; default `warn`. */
  readonly level?: ErrorLevel;
}

/** A failure with the errno it is to be answered with. The message says what happened, to what, and what to do. */
export class TmaxError extends Error {
  override readonly name = 'TmaxError';
  readonly errno: ErrnoName;
  readonly source: string | undefined;
  readonly level: ErrorLevel;

  constructor(errno: ErrnoName, message: string, options: TmaxErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.errno = errno;
    this.source = options.source;
    this.level = options.level ?? 'warn';
  }

  /** The positive number that the kernel's ABI gives this errno. */
  get errnoNumber(): number {
    return errnoNumber(this.errno);
  }
}

/** The positive number of an errno on this machine. */
export function errnoNumber(name: ErrnoName): number {
  return constants.errno[name as keyof typeof constants.errno];
}

/** Any thrown value as a `TmaxError`; what is not one yet becomes EIO at level `error`, since it is a bug or a surprise. */
export function toTmaxError(thrown: unknown, source: string): TmaxError {
  if (thrown instanceof TmaxError) return thrown;
  return new TmaxError('EIO', messageOf(thrown), { cause: thrown, source, level: 'error' });
}

/** The message of any thrown value, with those of its causes behind it, for a human to read. */
export function messageOf(thrown: unknown): string {
  const parts: string[] = [];
  let current: unknown = thrown;
  for (let depth = 0; current !== undefined && depth < 5; depth += 1) {
    const text = current instanceof Error ? current.message || current.name : String(current);
    if (text !== '' && !parts.some((part) => part.includes(text))) parts.push(text);
    current = current instanceof Error ? current.cause : undefined;
  }
  return parts.join(': ');
}

/** What a person is told of any thrown value. A `TmaxError` says by itself all that matters; its causes are for the log. */
export function wordsOf(thrown: unknown): string {
  return thrown instanceof TmaxError ? thrown.message : messageOf(thrown);
}

/** Names of all errnos; several of them (EDQUOT, ESTALE) Node throws as "Unknown system error" and a number, or as UNKNOWN. */
const ERRNO_NAMES = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]));

/** The code of a system error (`ENOENT`, `ECONNRESET`, …) thrown by Node, or undefined. */
export function systemErrorCode(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !('code' in thrown) || typeof thrown.code !== 'string') return undefined;
  const named =
    'errno' in thrown && typeof thrown.errno === 'number' ? ERRNO_NAMES.get(Math.abs(thrown.errno)) : undefined;
  const isUnnamed = thrown.code === 'UNKNOWN' || thrown.code.startsWith('Unknown system error');
  return isUnnamed ? (named ?? thrown.code) : thrown.code;
}
