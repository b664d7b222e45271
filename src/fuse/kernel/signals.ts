/**
 * Tells from /proc/<tid>/status whether a thread that waits in the kernel has a reason to stop waiting.
 *
 * The kernel says once per request that a signal came, whatever signal it was. So a signal that changes nothing for its
 * receiver must not end the wait, and must not hide one that comes later: the caller of this file looks again and again.
 */

import { readFileSync, readlinkSync } from 'node:fs';
import { constants } from 'node:os';
import { systemErrorCode } from '../../errors.js';

const { SIGCHLD, SIGCONT, SIGURG, SIGWINCH, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU } = constants.signals;

/**
 * These end no wait, even where a handler is set. By default they do nothing to a process, and the programs that catch
 * them do so for their own housekeeping: the Go runtime sends itself SIGURG many times a second, shells and event
 * loops catch SIGCHLD, and an `open` of a local file would not be interrupted by them either.
 */
const HOUSEKEEPING = maskOf(SIGCHLD, SIGCONT, SIGURG, SIGWINCH);
/** By default these stop a process, which it survives: they count only where a handler is set. */
const STOPPING = maskOf(SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU);

function maskOf(...signals: readonly number[]): bigint {
  return signals.reduce((mask, signal) => mask | (1n << BigInt(signal - 1)), 0n);
}

/** Whether the text of a /proc/<tid>/status shows a pending signal that kills its thread or that it catches. */
export function hasReasonToStop(status: string): boolean {
  const caught = signalMask(status, 'SigCgt');
  const pending = (signalMask(status, 'SigPnd') | signalMask(status, 'ShdPnd')) & ~signalMask(status, 'SigBlk');
  const effective = pending & ~signalMask(status, 'SigIgn') & ~HOUSEKEEPING;
  return (effective & (caught | ~STOPPING)) !== 0n;
}

function signalMask(status: string, field: string): bigint {
  const digits = new RegExp(`^${field}:\\s*([0-9a-f]{1,32})$`, 'm').exec(status)?.[1];
  return digits === undefined ? 0n : BigInt(`0x${digits}`);
}

/** Whether /proc shows processes under the numbers of this process's own pid namespace. */
function isProcOurs(): boolean {
  try {
    return readlinkSync('/proc/self') === String(process.pid);
  } catch {
    return false;
  }
}

/**
 * Whether the thread `tid` is gone, dying, or has a signal to act on. Where it can't be looked at, its first signal counts,
 * since a caller that can't be killed is worse than an `open` that is tried again: a thread outside of this process's pid
 * namespace (0; those in namespaces below have a number here), or a /proc of another pid namespace, whose numbers are not
 * the kernel's.
 */
export function wantsToStop(tid: number): boolean {
  if (tid === 0 || !isProcOurs()) return true;
  try {
    return hasReasonToStop(readFileSync(`/proc/${tid}/status`, 'latin1'));
  } catch (error) {
    // ENOENT, ESRCH: the thread has ended. Anything else says that we can't look, as for pid 0.
    return systemErrorCode(error) !== undefined;
  }
}
