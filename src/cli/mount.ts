/**
 * `tmaxfs mount`: in the foreground the daemon itself; else a starter that waits for the daemon to say that the tree is
 * readable, or why not, and leaves it running. A starter that is ended takes the daemon with it.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import { defaultLogFile } from '../daemon/log-place.js';
import { parsePath } from '../daemon/path-word.js';
import { describePool } from '../daemon/pool-choices.js';
import { type MountWords, readSettings, type Settings } from '../daemon/settings.js';
import { messageOf, systemErrorCode, TmaxError } from '../errors.js';
import { makeFolder } from '../folders.js';
import { checkMountpoint } from '../fuse/mounts.js';
import { packageRoot } from '../version.js';
import { type StartReport, startReportShape } from './start-report.js';

export interface MountCommandOptions extends MountWords {
  readonly foreground: boolean;
  readonly logFile?: string | undefined;
}

/** How long a start may be silent before it is said what it waits for, and how often it is said again. */
const SILENCE_MS = 3_000;
/** How long a daemon that was called off may take to end by itself. */
const CALL_OFF_LIMIT_MS = 8_000;
const LOG_FILE_MODE = 0o640;

/** `args` are the words after `mount`, as they were written. Errors: EINVAL usage; any that keeps the daemon from starting. */
export async function mount(options: MountCommandOptions, args: readonly string[]): Promise<void> {
  const settings = readSettings(options, process.env);
  const logFile = options.logFile === undefined ? undefined : parsePath(options.logFile, '--log-file');
  if (options.foreground) {
    const { serve } = await import('./serve.js');
    await serve(settings, logFile);
  } else await startInBackground(settings, logFile ?? defaultLogFile(settings.mountpoint, process.env), args);
}

async function startInBackground(settings: Settings, logFile: string, args: readonly string[]): Promise<void> {
  // A slip of the pen shall not leave a log file behind.
  await checkMountpoint(settings.mountpoint);
  const output = openLog(logFile);
  const executable = fileURLToPath(new URL('bin/tmaxfs.js', packageRoot));
  // In front of the user's words, which may hold a "--".
  const words = ['mount', '--foreground', '--log-file', logFile, ...args];
  // What is not a log line (a crash of Node itself) goes into the log file too. In this process group, until it has mounted:
  // an automount lets nobody through to its mount point but the group that it has called.
  const daemon = spawn(process.execPath, [executable, ...words], {
    stdio: ['ignore', output, output, 'ipc'],
  });
  closeSync(output);
  const calledOff = callOffWhenEnded();
  const said = sayWhatItWaitsFor(daemon, settings);
  try {
    const report = await Promise.race([lastReport(daemon), calledOff]);
    if (report.kind === 'failed')
      throw new TmaxError('EIO', `${report.reason} (log: ${logFile})`, { source: 'daemon' });
    process.stdout.write(`${report.summary}\nlog: ${logFile}\n`);
  } catch (error) {
    await end(daemon);
    throw error;
  } finally {
    said.end();
  }
}

/** Errors: EACCES, ENOSPC, … naming the file and the way round it. */
function openLog(path: string): number {
  try {
    makeFolder(dirname(path));
    return openSync(path, 'a', LOG_FILE_MODE);
  } catch (cause) {
    const message = `the log file ${path} can't be written (${systemErrorCode(cause)}); name another with --log-file`;
    throw new TmaxError('EACCES', message, { cause, source: 'daemon' });
  }
}

type LastReport = Exclude<StartReport, { kind: 'progress' }>;

/** What the daemon reports, or how it ended before it could. The waits inside the daemon are bounded, and so this one is. */
function lastReport(daemon: ChildProcess): Promise<LastReport> {
  return new Promise((resolve) => {
    daemon.once('error', (error) => resolve({ kind: 'failed', reason: messageOf(error) }));
    daemon.on('message', (message) => {
      const report = v.parse(startReportShape, message);
      if (report.kind !== 'progress') resolve(report);
    });
    daemon.once('exit', (exitCode, signal) => {
      const how = signal ?? `exit code ${exitCode}`;
      resolve({ kind: 'failed', reason: `the daemon ended (${how}) before it was ready` });
    });
  });
}

/** Errors: EINTR once this process is told to end. */
function callOffWhenEnded(): Promise<never> {
  return new Promise((_resolve, reject) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      // A second one changes nothing: calling off takes a moment, and is bounded.
      process.on(signal, () => {
        reject(new TmaxError('EINTR', `called off (${signal}): nothing is mounted`, { source: 'cli' }));
      });
    }
  });
}

function sayWhatItWaitsFor(daemon: ChildProcess, { pools }: Settings): { end(): void } {
  let words = `the list of tasks of ${pools.map(describePool).join(', ')} is not there yet`;
  let saidWords: string | undefined;
  daemon.on('message', (message) => {
    const report = v.safeParse(startReportShape, message);
    if (report.success && report.output.kind === 'progress') words = report.output.words;
  });
  const timer = setInterval(() => {
    if (words === saidWords) return;
    saidWords = words;
    process.stderr.write(`tmaxfs: still trying: ${words}\n`);
  }, SILENCE_MS);
  return { end: () => clearInterval(timer) };
}

/** A daemon that has failed ends by itself; one that was called off is told to. */
async function end(daemon: ChildProcess): Promise<void> {
  const isRunning = () => daemon.pid !== undefined && daemon.exitCode === null && daemon.signalCode === null;
  if (!isRunning()) return;
  const ended = new Promise((resolve) => daemon.once('exit', resolve));
  daemon.kill('SIGTERM');
  await Promise.race([ended, delay(CALL_OFF_LIMIT_MS)]);
  if (isRunning()) daemon.kill('SIGKILL');
}
