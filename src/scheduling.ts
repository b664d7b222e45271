/**
 * Which threads of a daemon go first where there are not cores enough. Those that answer the kernel are few, short and waited for
 * by every program that looks at the mount; those that fetch, prove and copy run for long, and nobody notices a few milliseconds.
 *
 * Two means, which only help together: the threads that answer have short turns and the others long ones, so that who wakes to
 * answer does not wait for the end of a long turn (Linux 6.12 and newer); and they have a better priority, where that is allowed
 * (root). Both belong to threads, and new threads and programs inherit them: hence those that work say that they do, and the main
 * thread, which alone has the system calls, puts them behind.
 */

import { readlinkSync } from 'node:fs';
import { getPriority, setPriority } from 'node:os';
import { BroadcastChannel } from 'node:worker_threads';
import { setTimeSlice } from './libc.js';

/** Steps of nice(2): a share of a contended core nine times as large. */
const BETTER_BY = 10;
const BEST_PRIORITY = -20;
const SHORT_TURN_US = 100;
const LONG_TURN_US = 20_000;
/** Where threads say that they work. */
const WORKING = 'tmaxfs: working threads';

let usualPriority: number | undefined;

/** The calling thread, and those that it starts, answer first. To be called once, by the main thread of a daemon. */
export function answerFirst(): void {
  advise(() => {
    usualPriority = getPriority();
    setPriority(0, Math.max(BEST_PRIORITY, usualPriority - BETTER_BY));
  });
  advise(() => setTimeSlice(0, SHORT_TURN_US));
  const channel = new BroadcastChannel(WORKING);
  channel.onmessage = (message) => {
    const tid: unknown = message instanceof MessageEvent ? message.data : undefined;
    if (typeof tid !== 'number' || tid === process.pid) return;
    leaveBehind(tid);
    advise(() => setTimeSlice(tid, LONG_TURN_US));
  };
  channel.unref();
}

/** The calling thread, where it was started by a daemon's main thread, does not answer first itself. */
export function workBehind(): void {
  const [, tid] = /(\d+)$/.exec(readlinkSync('/proc/thread-self')) ?? [];
  const channel = new BroadcastChannel(WORKING);
  channel.postMessage(Number(tid));
  channel.close();
}

/** Has a process, or a thread, that was started by a thread that answers first run as any other. */
export function leaveBehind(id: number): void {
  const usual = usualPriority;
  if (usual !== undefined) advise(() => setPriority(id, usual));
}

/** Not given to an ordinary user, nor where a filter of system calls (seccomp(2)) refuses it, and in vain where it has ended. */
function advise(act: () => void): void {
  try {
    act();
  } catch {
    // Everything works without it, only later on a machine that is busy.
  }
}
