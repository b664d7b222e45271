/** What a process uses, as /proc shows it. */

import { readFileSync } from 'node:fs';

const CLOCK_TICKS_PER_SECOND = 100;

/** Resident memory, of the program's own file and libraries too. */
export function residentBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) * 1024;
}

/** Processor time so far (user and system; fields 14 and 15 of proc(5), counted behind the name in parentheses). */
export function processorSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / CLOCK_TICKS_PER_SECOND;
}
