/** A fake Hub for one test, and settings for a client of it. */

import type { ExecutionContext } from 'ava';
import { type Logger, pino } from 'pino';
import { FakeHub, type FakeHubOptions } from '../../src/demo/fake-hub.js';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { type FakeFile, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import type { HubSettings } from '../../src/sources/hub-settings.js';
import type { RetrySettings } from '../../src/sources/limits.js';

export const REPOSITORY = 'org/pool';

/** Retries without waits worth mentioning; as many as the real ones make, so that bounds are tested too. */
export const QUICK_RETRY: RetrySettings = {
  baseMs: 1,
  maxMs: 4,
  maxAttemptsWithoutProgress: 6,
  totalBudgetMs: 300_000,
  maxPauseMs: 50,
};

/** Short deadlines only where a fault needs them to be noticed, so that a busy machine adds no failures of its own. */
export function deadlinesFor(fault: Fault): Partial<HubSettings> {
  if (fault.kind === 'stall' && fault.afterBytes === undefined) return { headersTimeoutMs: 1000 };
  if (fault.kind === 'slow') return { minBytesPerSecond: 100_000, speedWindowMs: 300 };
  return fault.kind === 'stall' ? { idleTimeoutMs: 300 } : {};
}

export async function startHub(
  t: ExecutionContext,
  files: readonly FakeFile[],
  options: Partial<FakeHubOptions> = {},
): Promise<FakeHub> {
  const hub = await FakeHub.start({ repositories: [repositoryOf(REPOSITORY, files)], ...options });
  t.teardown(() => hub.close());
  return hub;
}

/** The commit that `main` stands for. */
export function headOf(hub: FakeHub): string {
  return hub.repository(REPOSITORY).head.commit;
}

export function hubSettings(endpoint: string, changes: Partial<HubSettings> = {}): HubSettings {
  return {
    endpoint,
    token: async () => undefined,
    userAgent: 'tmaxfs/test',
    // On a busy machine one of many falls silent for a while: no reason to ask twice for what a test counts.
    connectTimeoutMs: 60_000,
    headersTimeoutMs: 60_000,
    idleTimeoutMs: 60_000,
    minBytesPerSecond: 0,
    speedWindowMs: 10_000,
    log: pino({ level: 'silent' }),
    ...changes,
  };
}

/** A logger whose lines, parsed, are to be read in the array. */
export function recordingLog(): { readonly log: Logger; readonly lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: 'trace' }, { write: (line: string) => lines.push(JSON.parse(line)) });
  return { log, lines };
}
