/** What a process of its own had in memory at most; of threads that share one process it tells nothing. */

import { readFileSync } from 'node:fs';

/** Not getrusage: its maximum counts what the parent had in memory when it forked. */
export function peakMemoryBytes(): number {
  return Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * 1024;
}
