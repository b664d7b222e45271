/**
 * `tmaxfs mount`: in the foreground the daemon itself; else a starter that waits for the daemon to say that the tree is
 * readable, or why not, and leaves it running.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';
import * as v from 'valibot';
import type { Daemon } from '../daemon/daemon.js';
import { defaultLogFile } from '../daemon/log-place.js';
import { serviceNotifier } from '../daemon/service-notification.js';
import { type MountWords, readSettings, type Settings } from '../daemon/settings.js';
import { messageOf, TmaxError } from '../errors.js';
import { makeFolder } from '../folders.js';
import { exitNow } from '../libc.js';
import { packageRoot } from '../version.js';

export interface MountCommandOptions extends MountWords {
  readonly foreground: boolean;
  readonly logFile?: string | undefined;
}

/** How long closing may take once the mount has gone: enough to flush and to end threads. */
const CLOSE_LIMIT_MS = 5_000;
const EXIT_FAILED = 1;

/** What a daemon in the background tells its starter, once. */
const reportShape = v.union([
  v.object({ ready: v.literal(true), summary: v.string() }),
  v.object({ ready: v.literal(false), reason: v.string() }),
]);
type Report = v.InferOutput<typeof reportShape>;

/** `args` are the words after `mount`, as they were written. Errors: EINVAL usage; any that keeps the daemon from starting. */
export async function mount(options: MountCommandOptions, args: readonly string[]): Promise<void> {
  const settings = readSettings(options, process.env);
  if (options.foreground) await serve(settings, options.logFile);
  else await startInBackground(settings, options.logFile, args);
}

async function startInBackground(
  settings: Settings,
  logFile: string | undefined,
  args: readonly string[],
): Promise<void> {
  const path = resolve(logFile ?? defaultLogFile(settings.mountpoint, process.env));
  makeFolder(dirname(path));
  const output = openSync(path, 'a', 0o644);
  const executable = fileURLToPath(new URL('bin/tmaxfs.js', packageRoot));
  const words = ['mount', ...args, '--foreground', '--log-file', path];
  // What is not a log line (a crash of Node itself) goes into the log file too.
  const daemon = spawn(process.execPath, [executable, ...words], {
    detached: true,
    stdio: ['ignore', output, output, 'ipc'],
  });
  closeSync(output);
  const report = await firstReport(daemon);
  if (!report.ready) throw new TmaxError('EIO', `${report.reason} (log: ${path})`, { source: 'daemon' });
  daemon.disconnect();
  daemon.unref();
  process.stdout.write(`${report.summary}\nlog: ${path}\n`);
}

/** What the daemon reports, or how it ended before it could. The waits inside the daemon are bounded, and so this one is. */
function firstReport(daemon: ChildProcess): Promise<Report> {
  return new Promise((resolve, reject) => {
    daemon.once('error', reject);
    daemon.once('message', (message) => resolve(v.parse(reportShape, message)));
    daemon.once('exit', (exitCode, signal) => {
      resolve({ ready: false, reason: `the daemon ended (${signal ?? `exit code ${exitCode}`}) before it was ready` });
    });
  });
}

async function serve(settings: Settings, logFile: string | undefined): Promise<void> {
  // While the catalog is read, V8 would make the young generation 48 MB large, and keep it for the life of the daemon.
  setFlagsFromString('--semi-space-growth-factor=1');
  // Loaded only here: a starter that leaves the work to a daemon in the background does without.
  const [{ Daemon }, { fileLogger, standardLogger }] = await Promise.all([
    import('../daemon/daemon.js'),
    import('../daemon/log.js'),
  ]);
  const { logLevel } = settings;
  const log = await (logFile === undefined ? standardLogger(logLevel) : fileLogger(logLevel, resolve(logFile)));
  const notify = serviceNotifier(process.env);
  let daemon: Daemon;
  try {
    daemon = await Daemon.start(settings, log, process.env);
  } catch (error) {
    log.fatal({ reason: messageOf(error) }, 'tmaxfs could not start');
    await report({ ready: false, reason: messageOf(error) });
    endWithin(CLOSE_LIMIT_MS);
    throw error;
  }
  // The working directory of a daemon would keep its file system busy.
  process.chdir('/');
  process.on('SIGHUP', () => {
    log.info('asked to look for a newer commit');
    daemon.reload();
  });
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      log.info({ signal }, 'asked to stop');
      notify({ stopping: true, status: 'unmounting' });
      daemon.stop();
    });
  }
  const summary = daemon.summary();
  notify({ ready: true, status: summary });
  await report({ ready: true, summary });
  await daemon.ending;
  endWithin(CLOSE_LIMIT_MS);
  await daemon.ended;
}

/**
 * The process ends by itself when nothing is left to do. A thread that blocks in the kernel would keep it for ever (a mount
 * that could not be taken down, a disk that does not answer): after the limit it is ended without being asked.
 */
function endWithin(limitMs: number): void {
  setTimeout(() => {
    process.stderr.write(`tmaxfs: not done with closing after ${limitMs / 1000} s: ended by force\n`);
    exitNow(EXIT_FAILED);
  }, limitMs).unref();
}

/** Tells the starter, where there is one. */
async function report(message: Report): Promise<void> {
  const { send } = process;
  if (send === undefined || !process.connected) return;
  await new Promise<void>((resolve) => {
    send.call(process, message, () => resolve());
  });
  process.disconnect();
}
