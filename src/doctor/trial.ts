/** Asks disk-trial.ts and catalog-trial.ts, each in a process of its own, and waits for an answer no longer than it may take. */

import { fileURLToPath } from 'node:url';
import * as v from 'valibot';
import type { BlobAddress } from '../sources/source.js';
import type { PoolPlace } from './catalog-trial.js';
import type { CacheTrial, MountTrial } from './disk-trial.js';
import { runProgram } from './program.js';

type Program = 'disk-trial' | 'catalog-trial';
/** Below the deadline of a check, so that it can say what hangs. */
const TRIAL_LIMIT_MS = 6_000;

const cacheShape = v.object({
  folder: v.string(),
  exists: v.boolean(),
  isForeign: v.boolean(),
  refusal: v.nullable(v.string()),
  groupId: v.nullable(v.number()),
  totalBytes: v.number(),
  availableBytes: v.number(),
  cachedBytes: v.number(),
  availableFiles: v.nullable(v.number()),
  writeError: v.nullable(v.string()),
  writeMs: v.number(),
  locksExclude: v.nullable(v.boolean()),
  lockError: v.nullable(v.string()),
});
const imagesShape = v.array(
  v.object({
    repository: v.string(),
    commit: v.string(),
    path: v.string(),
    sha256: v.string(),
    sizeBytes: v.number(),
  }),
);
const mountShape = v.object({ error: v.nullable(v.string()) });

/** Undefined where it hangs. `isShared`: its group is to be let in. */
export async function tryCacheFolder(
  folder: string,
  isShared: boolean,
  limitMs = TRIAL_LIMIT_MS,
): Promise<CacheTrial | undefined> {
  const answer = await ask('disk-trial', [isShared ? 'shared-cache' : 'cache', folder], limitMs);
  return answer === undefined ? undefined : v.parse(cacheShape, answer);
}

/** Undefined where it hangs. */
export async function tryMountpoint(mountpoint: string, limitMs = TRIAL_LIMIT_MS): Promise<MountTrial | undefined> {
  const answer = await ask('disk-trial', ['mount', mountpoint], limitMs);
  return answer === undefined ? undefined : v.parse(mountShape, answer);
}

/** The smallest image of each pool whose catalog is below this cache directory; none where that hangs, or can't be read. */
export async function storedImages(
  cacheDirectory: string,
  pools: readonly PoolPlace[],
  limitMs: number,
): Promise<readonly BlobAddress[]> {
  const places = pools.map(({ repository, revision, catalog }) => ({ repository, revision, catalog }));
  const answer = await ask('catalog-trial', [cacheDirectory, JSON.stringify(places)], limitMs).catch(() => undefined);
  return answer === undefined ? [] : v.parse(imagesShape, answer);
}

/** Errors: what the program says where it fails. */
async function ask(program: Program, args: readonly string[], timeoutMs: number): Promise<unknown> {
  const path = fileURLToPath(new URL(`./${program}.js`, import.meta.url));
  const { exitCode, stdout, stderr, isLate } = await runProgram(process.execPath, [path, ...args], { timeoutMs });
  if (isLate) return undefined;
  if (exitCode !== 0) throw new Error(stderr.trim() || `the trial ended with ${exitCode ?? 'a signal'}`);
  return JSON.parse(stdout);
}
