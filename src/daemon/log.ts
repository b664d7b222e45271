/**
 * Where log lines go: JSON, one a line, for machines and files; readable words where a person watches a terminal.
 * A file is bounded: it is rolled at `LOG_FILE_LIMIT`, and `OLD_LOG_FILES` older ones are kept.
 *
 * Failures that repeat are counted (repeated-failures.ts).
 *
 * A log that can't be written (a full disk, a terminal that has gone) never ends a daemon whose mount still works: lines
 * are lost, and what waits to be written is bounded.
 */

import { basename, dirname } from 'node:path';
import { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { type DestinationStream, type Logger, type LoggerOptions, pino } from 'pino';
import { createStream, type RotatingFileStream } from 'rotating-file-stream';
import { makeFolder } from '../folders.js';
import { type Failure, RepeatedFailures, type WriteLine } from './repeated-failures.js';
import type { LogLevel } from './settings.js';

const LOG_FILE_LIMIT = '20M';
const OLD_LOG_FILES = 3;
/** Settings may hold what is not everyone's business. */
const LOG_FILE_MODE = 0o640;
/** Of lines that could not be written yet; more are lost. */
const MAX_PENDING_BYTES = 1024 * 1024;
/** How long a file that could not be written is left alone. */
const REOPEN_PAUSE_MS = 5_000;
/** As pino counts. */
const WARNING = 40;
const ERROR = 50;
const FATAL = 60;
/** Fields that a person has no use for on a terminal. */
const HIDDEN_FIELDS = 'pid,hostname,settings';

export interface OpenLog {
  readonly log: Logger;
  /** Resolves once all lines are written, or can't be. */
  close(): Promise<void>;
}

/** Told of each warning, and of whatever is tried again, in words for a person. */
type OnWarning = (words: string) => void;

/** On standard error: JSON, or readable where that is a terminal. */
export async function standardLog(level: LogLevel, onWarning: OnWarning): Promise<OpenLog> {
  const repeated = new RepeatedFailures();
  const close = async () => repeated.flush();
  const standardError = pino.destination({ dest: 2, sync: true, maxLength: MAX_PENDING_BYTES });
  standardError.on('error', () => undefined);
  if (!process.stderr.isTTY) return { log: logger(level, onWarning, repeated, standardError), close };
  const { default: pretty } = await import('pino-pretty');
  const format = { ignore: HIDDEN_FIELDS, translateTime: 'SYS:HH:MM:ss', singleLine: true, colorize: true };
  // What pretty is given must not fail: it would give up for good.
  const destination = new Writable({
    write: (chunk, _encoding, done) => {
      standardError.write(String(chunk));
      done();
    },
  });
  return { log: logger(level, onWarning, repeated, pretty({ ...format, destination })), close };
}

/** Into a file, rolled at a size limit. Errors: those of making its folder. */
export function fileLog(level: LogLevel, path: string, onWarning: OnWarning): OpenLog {
  makeFolder(dirname(path));
  const file = new RolledFile(path);
  const repeated = new RepeatedFailures();
  const close = async () => {
    repeated.flush();
    await file.close();
  };
  return { log: logger(level, onWarning, repeated, file), close };
}

/** Given up where it can't be written, and opened anew a while later. */
class RolledFile implements DestinationStream {
  readonly #path: string;
  #stream: RotatingFileStream | undefined;
  #closedUntilMs = 0;

  constructor(path: string) {
    this.#path = path;
  }

  write(line: string): void {
    this.#stream ??= this.#open();
    if (this.#stream === undefined || this.#stream.writableLength > MAX_PENDING_BYTES) return;
    this.#stream.write(line);
  }

  async close(): Promise<void> {
    const stream = this.#stream?.end();
    if (stream !== undefined) await finished(stream).catch(() => undefined);
  }

  #open(): RotatingFileStream | undefined {
    if (performance.now() < this.#closedUntilMs) return undefined;
    const path = this.#path;
    const stream = createStream(basename(path), {
      path: dirname(path),
      size: LOG_FILE_LIMIT,
      rotate: OLD_LOG_FILES,
      mode: LOG_FILE_MODE,
    });
    stream.on('error', (error) => {
      if (this.#stream !== stream) return;
      this.#stream = undefined;
      this.#closedUntilMs = performance.now() + REOPEN_PAUSE_MS;
      process.stderr.write(`tmaxfs: the log file ${path} can't be written, lines are lost: ${error.message}\n`);
    });
    return stream;
  }
}

function logger(
  level: LogLevel,
  onWarning: OnWarning,
  repeated: RepeatedFailures,
  destination: DestinationStream,
): Logger {
  const options: LoggerOptions = {
    level,
    base: { pid: process.pid },
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    hooks: {
      logMethod(args, method, number) {
        // The last words of one that ends are no warning.
        if ((number >= WARNING && number < FATAL) || isRetry(args)) onWarning(wordsOfLine(args));
        const failure = failureOf(args, number);
        const write: WriteLine = (fields, words) => method.apply(this, [fields, words]);
        if (failure === undefined || repeated.isFirst(failure, write)) method.apply(this, args);
      },
    },
  };
  return pino(options, destination);
}

function isRetry([fields]: readonly unknown[]): boolean {
  return typeof fields === 'object' && fields !== null && 'attempt' in fields;
}

/** What a line says of something that went wrong; undefined for other lines. */
function failureOf(args: readonly unknown[], level: number): Failure | undefined {
  if ((level < WARNING && !isRetry(args)) || level > ERROR) return undefined;
  const [fields, words] = args;
  if (typeof fields !== 'object' || fields === null || typeof words !== 'string') return undefined;
  const text = (name: string): string => (name in fields ? String(Reflect.get(fields, name)) : '');
  const [errno, source, reason] = [text('errno'), text('source'), text('reason') || text('code')];
  if (errno === '' && reason === '') return undefined;
  return { level, errno, source, words, reason };
}

/** A line is its words, or fields and then its words; the field `reason` says what led to it. */
function wordsOfLine([first, words]: readonly unknown[]): string {
  if (typeof first === 'string') return first;
  const reason = typeof first === 'object' && first !== null && 'reason' in first ? `: ${first.reason}` : '';
  return `${words}${reason}`;
}
