/**
 * Where log lines go: JSON, one a line, for machines and files; readable words where a person watches a terminal.
 * A file is bounded: it is rolled at `LOG_FILE_LIMIT`, and `OLD_LOG_FILES` older ones are kept.
 */

import { basename, dirname } from 'node:path';
import { type DestinationStream, type Logger, pino } from 'pino';
import { createStream } from 'rotating-file-stream';
import { makeFolder } from '../folders.js';
import type { LogLevel } from './settings.js';

const LOG_FILE_LIMIT = '20M';
const OLD_LOG_FILES = 3;

/** A logger on standard error: JSON, or readable where that is a terminal. */
export async function standardLogger(level: LogLevel): Promise<Logger> {
  if (!process.stderr.isTTY) return logger(level, pino.destination({ dest: 2, sync: true }));
  const { default: pretty } = await import('pino-pretty');
  return logger(level, pretty({ destination: 2, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss', sync: true }));
}

/** A logger into a file, rolled at a size limit. */
export function fileLogger(level: LogLevel, path: string): Logger {
  makeFolder(dirname(path));
  const stream = createStream(basename(path), { path: dirname(path), size: LOG_FILE_LIMIT, rotate: OLD_LOG_FILES });
  // A full or broken log disk must not end a daemon whose mount still works: the lines are lost, and said to be on stderr.
  stream.on('error', (error) =>
    process.stderr.write(`tmaxfs: the log file ${path} can't be written: ${error.message}\n`),
  );
  return logger(level, stream);
}

function logger(level: LogLevel, destination: DestinationStream): Logger {
  const formatters = { level: (label: string) => ({ level: label }) };
  return pino({ level, base: { pid: process.pid }, timestamp: pino.stdTimeFunctions.isoTime, formatters }, destination);
}
