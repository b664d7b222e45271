/**
 * Which threads of a daemon go first where there are not cores enough. Those that answer the kernel are few, short and waited for
 * by every program that looks at the mount; those that fetch, prove and copy run for long, and nobody notices a few milliseconds.
 *
 * Two means, which only help together: the threads that answer have short turns and the others long ones, so that who wakes to
 * answer does not wait for the end of a long turn (Linux 6.12 and newer); and they have a better priority, where that is allowed
 * (root). Priorities belong to threads, and new threads and programs inherit them: hence those that work give it back.
 */

import { constants, getPriority, setPriority } from 'node:os';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import { setTimeSlice } from './libc.js';

/** Steps of nice(2): a share of a contended core nine times as large. */
const BETTER_BY = 10;
const BEST_PRIORITY = -20;
const SHORT_TURN_US = 100;
const LONG_TURN_US = 20_000;
/** The key under which threads find the priority that the process was started with. */
const USUAL_PRIORITY = 'tmaxfs: usual priority';

/** The calling thread, and those that it starts, answer first. To be called once, by the main thread of a daemon. */
export function answerFirst(): void {
  const usual = getPriority();
  setEnvironmentData(USUAL_PRIORITY, usual);
  changePriority(0, Math.max(BEST_PRIORITY, usual - BETTER_BY));
  setTimeSlice(SHORT_TURN_US);
}

/** The calling thread, started by a main thread that answers first, does not itself. */
export function workBehind(): void {
  leaveBehind(0);
  setTimeSlice(LONG_TURN_US);
}

/** Has a process that was started by a thread that answers first run as any other. */
export function leaveBehind(pid: number): void {
  const usual = getEnvironmentData(USUAL_PRIORITY);
  if (typeof usual === 'number') changePriority(pid, usual);
}

const { EACCES, EPERM, ESRCH } = constants.errno;

/** Not allowed to an ordinary user, and in vain where the process has ended: neither is worth a word. */
function changePriority(pid: number, priority: number): void {
  try {
    setPriority(pid, priority);
  } catch (error) {
    const errno = error instanceof Error && 'errno' in error ? -Number(error.errno) : 0;
    if (errno !== EACCES && errno !== EPERM && errno !== ESRCH) throw error;
  }
}
