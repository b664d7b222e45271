/** Processes, seen from outside. */

import { readFileSync } from 'node:fs';

/** Whether a process has ended. One that its parent has not waited for yet is still listed, as a zombie. */
export function hasEnded(pid: number): boolean {
  try {
    return /\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return true;
  }
}
