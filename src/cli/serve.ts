/** The daemon's own process: from its settings to its end, whatever comes: signals, a crash, a starter that goes away. */

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { Daemon } from '../daemon/daemon.js';
import type { OpenLog } from '../daemon/log.js';
import { keepMemorySmall } from '../daemon/memory.js';
import { lockMountpoint } from '../daemon/mount-lock.js';
import { ServiceReport } from '../daemon/service-report.js';
import type { Settings } from '../daemon/settings.js';
import { messageOf, TmaxError, wordsOf } from '../errors.js';
import { checkMountpoint } from '../fuse/mounts.js';
import { exitNow, startSession } from '../libc.js';
import { answerFirst } from '../scheduling.js';
import { onLostOutput } from './process-end.js';
import { reportStart } from './start-report.js';

/** How long closing may take once the mount has gone, or a start was called off: enough to flush and to end threads. */
const CLOSE_LIMIT_MS = 5_000;
/** How long the last line of a crash may take to get into the log. */
const LAST_WORDS_MS = 500;
const EXIT_FAILED = 1;

/** Returns when the mount has gone. Errors: whatever keeps it from starting, where nothing else has said so yet. */
export async function serve(settings: Settings, logFile: string | undefined): Promise<void> {
  // A daemon outlives the terminal and the pipes that it was started on.
  onLostOutput(() => undefined);
  const starting = new AbortController();
  const callOff = () => starting.abort();
  // Nobody would know of a mount whose starter has gone before it was there.
  process.once('disconnect', callOff);
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, callOff);
  answerFirst();
  const service = new ServiceReport(process.env);
  let output: OpenLog | undefined;
  try {
    const lock = lockMountpoint(settings.mountpoint, process.env);
    let daemon: Daemon;
    try {
      // Nothing is logged of a mount point that was misspelt, or that somebody else serves.
      await checkMountpoint(settings.mountpoint);
      output = await openLog(settings, logFile, (words) => {
        service.waitsFor(words);
        void reportStart({ kind: 'progress', words });
      });
      service.logTo(output.log);
      endOnCrash(output);
      daemon = await start(settings, output, logFile, starting.signal);
    } finally {
      lock.release();
    }
    process.off('disconnect', callOff);
    if (process.send !== undefined) leaveStarter(output.log);
    await serveUntilEnd(daemon, output, service, starting.signal);
  } catch (error) {
    if (starting.signal.aborted) {
      // It has done as it was told.
      output?.log.info('asked to stop before anything was mounted');
      return;
    }
    output?.log.fatal({ reason: messageOf(error) }, 'tmaxfs could not start');
    service.failed(wordsOf(error));
    await reportStart({ kind: 'failed', reason: wordsOf(error) });
    process.exitCode = EXIT_FAILED;
    const isSaid = process.send !== undefined || (output !== undefined && logFile === undefined);
    if (!isSaid) throw error;
  } finally {
    endWithin(CLOSE_LIMIT_MS);
    await output?.close();
  }
}

/** What ends the starter's terminal or process group from now on does not end the daemon. */
function leaveStarter(log: OpenLog['log']): void {
  try {
    startSession();
  } catch (error) {
    log.warn({ reason: messageOf(error) }, 'the daemon stays in the session of who started it');
  }
}

async function openLog(
  { logLevel }: Settings,
  logFile: string | undefined,
  onWarning: (words: string) => void,
): Promise<OpenLog> {
  const { fileLog, standardLog } = await import('../daemon/log.js');
  return logFile === undefined ? standardLog(logLevel, onWarning) : fileLog(logLevel, logFile, onWarning);
}

/** Errors: those of `Daemon.start`; EINTR called off. */
async function start(
  settings: Settings,
  { log }: OpenLog,
  logFile: string | undefined,
  signal: AbortSignal,
): Promise<Daemon> {
  keepMemorySmall();
  // Loaded only here: a starter that leaves the work to a daemon in the background does without.
  const { Daemon } = await import('../daemon/daemon.js');
  const calledOff = async (): Promise<never> => {
    if (!signal.aborted) await once(signal, 'abort');
    await delay(CLOSE_LIMIT_MS);
    throw new TmaxError('EINTR', 'the start was called off', { source: 'daemon' });
  };
  // What can't be called off (a disk that does not answer) is left behind.
  return Promise.race([Daemon.start(settings, log, { environment: process.env, logFile, signal }), calledOff()]);
}

async function serveUntilEnd(
  daemon: Daemon,
  { log }: OpenLog,
  service: ServiceReport,
  calledOff: AbortSignal,
): Promise<void> {
  // The working directory of a daemon would keep its file system busy.
  process.chdir('/');
  process.on('SIGHUP', () => {
    log.info('asked to look for a newer commit');
    daemon.reload();
  });
  const stop = () => {
    log.info('asked to stop');
    service.stopping();
    daemon.stop();
  };
  if (calledOff.aborted) stop();
  else {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, stop);
    service.ready(() => daemon.activity());
    await reportStart({ kind: 'ready', summary: daemon.summary() });
    if (process.connected) process.disconnect();
  }
  await daemon.ending;
  service.end();
  endWithin(CLOSE_LIMIT_MS);
  await daemon.ended;
}

/**
 * What nobody has foreseen ends the process, at once: the threads that read from the kernel would keep a process that is
 * merely told to exit, and with it everybody who uses the mount.
 */
function endOnCrash({ log, close }: OpenLog): void {
  let isEnding = false;
  const crash = (thrown: unknown): void => {
    if (isEnding) return;
    isEnding = true;
    setTimeout(() => exitNow(EXIT_FAILED), LAST_WORDS_MS);
    const stack = thrown instanceof Error ? thrown.stack : undefined;
    log.fatal({ reason: messageOf(thrown), stack }, 'tmaxfs ends: this must not happen, please report it');
    void close().finally(() => exitNow(EXIT_FAILED));
  };
  process.on('uncaughtException', crash);
  process.on('unhandledRejection', crash);
}

/**
 * The process ends when nothing is left to do. A thread that blocks in the kernel would keep it for ever (a mount that could
 * not be taken down, a disk that does not answer): after the limit it is ended without being asked.
 */
function endWithin(limitMs: number): void {
  setTimeout(() => {
    process.stderr.write(`tmaxfs: not done with closing after ${limitMs / 1000} s: ended by force\n`);
    exitNow(EXIT_FAILED);
  }, limitMs).unref();
}
