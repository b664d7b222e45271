/** Asks disk-trial.ts, in a process of its own, and waits for its answer no longer than it may take. */

import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import type { CacheTrial, MountTrial } from './disk-trial.js';
import { runProgram } from './program.js';

const PROGRAM = fileURLToPath(new URL('./disk-trial.js', import.meta.url));
/** Below the deadline of a check, so that it can say what hangs. */
const TRIAL_LIMIT_MS = 6_000;

const cacheShape = v.object({
  folder: v.string(),
  exists: v.boolean(),
  isForeign: v.boolean(),
  totalBytes: v.number(),
  availableBytes: v.number(),
  cachedBytes: v.number(),
  availableFiles: v.nullable(v.number()),
  writeError: v.nullable(v.string()),
  writeMs: v.number(),
  locksExclude: v.nullable(v.boolean()),
  lockError: v.nullable(v.string()),
});
const mountShape = v.object({ error: v.nullable(v.string()) });

/** Undefined where it hangs. */
export async function tryCacheFolder(folder: string, limitMs = TRIAL_LIMIT_MS): Promise<CacheTrial | undefined> {
  const answer = await ask(['cache', folder], limitMs);
  return answer === undefined ? undefined : v.parse(cacheShape, answer);
}

/** Undefined where it hangs. */
export async function tryMountpoint(mountpoint: string, limitMs = TRIAL_LIMIT_MS): Promise<MountTrial | undefined> {
  const answer = await ask(['mount', mountpoint], limitMs);
  return answer === undefined ? undefined : v.parse(mountShape, answer);
}

/** Errors: what the program says where it fails. */
async function ask(args: readonly string[], timeoutMs: number): Promise<unknown> {
  const { exitCode, stdout, stderr, isLate } = await runProgram(process.execPath, [PROGRAM, ...args], { timeoutMs });
  if (isLate) return undefined;
  if (exitCode !== 0) throw new Error(stderr.trim() || `the trial ended with ${exitCode ?? 'a signal'}`);
  return JSON.parse(stdout);
}
