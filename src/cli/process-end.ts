/**
 * How a command's process ends: when its work is done, whatever else it has begun. A call to a mount whose daemon hangs
 * keeps a thread in the kernel for ever, and Node waits for its threads: so they are not waited for.
 */

import { systemErrorCode } from '../errors.js';
import { exitNow, loadLibc } from '../libc.js';

const EXIT_FAILED = 1;
/** How long the last words may take to get to a reader. */
const FLUSH_LIMIT_MS = 5_000;

/** Ends the process with `process.exitCode`, its words written. */
export async function endProcess(): Promise<void> {
  // A write that has failed says so only in the next turn.
  await new Promise((resolve) => setImmediate(resolve));
  await Promise.all([flushed(process.stdout), flushed(process.stderr)]);
  const exitCode = Number(process.exitCode ?? 0);
  try {
    loadLibc();
  } catch {
    process.exit(exitCode);
  }
  exitNow(exitCode);
}

/** A reader that goes away (`| head`) ends a command quietly; a full disk is one line. */
export function endWhenNobodyReads(): void {
  onLostOutput((error) => {
    if (systemErrorCode(error) !== 'EPIPE') {
      process.exitCode = EXIT_FAILED;
      process.stderr.write(`tmaxfs: the output can't be written: ${error.message}\n`);
    }
    void endProcess();
  });
}

/** From now on, in the place of what was said before, `handle` decides what becomes of a process that can't say anything. */
export function onLostOutput(handle: (error: Error) => void): void {
  process.stdout.removeAllListeners('error').on('error', handle);
  // There is nowhere left to say that.
  process.stderr.removeAllListeners('error').on('error', () => undefined);
}

async function flushed(stream: NodeJS.WriteStream): Promise<void> {
  if (stream.destroyed || stream.writableLength === 0) return;
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, FLUSH_LIMIT_MS);
  });
  await Promise.race([new Promise<void>((resolve) => stream.write('', () => resolve())), limit]);
  clearTimeout(timer);
}
