/** What this process uses of the machine. */

import { readdirSync } from 'node:fs';

export interface ProcessUse {
  readonly residentBytes: number;
  readonly cpuSeconds: number;
  readonly openDescriptors: number;
  /** Seconds since the epoch. */
  readonly startedAt: number;
}

const STARTED_AT = Date.now() / 1000 - process.uptime();

export function processUse(): ProcessUse {
  const { user, system } = process.cpuUsage();
  return {
    residentBytes: process.memoryUsage.rss(),
    cpuSeconds: (user + system) / 1_000_000,
    openDescriptors: readdirSync('/proc/self/fd').length,
    startedAt: STARTED_AT,
  };
}
