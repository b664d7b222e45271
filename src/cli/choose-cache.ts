/** Which cache directory a command means that needs no daemon. */

import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { BlobStore } from '../blobs/blob-store.js';
import { allDaemons } from '../daemon/daemons-on-cache.js';
import { chooseCacheDirectory } from '../daemon/settings.js';
import type { Status } from '../daemon/status.js';
import { TmaxError } from '../errors.js';

export interface CacheWords {
  readonly cacheDir?: string;
  readonly sharedCache: boolean;
}

/**
 * The one named; else the user's own; where there is none, that of this user's running daemons, which is told on standard error,
 * and is shared where it is to them. Errors: EINVAL no path, or daemons with different caches; those of `BlobStore.existing`.
 */
export async function openChosenCache({ cacheDir, sharedCache }: CacheWords): Promise<BlobStore> {
  const usual = chooseCacheDirectory(cacheDir, process.env);
  const isShared = sharedCache;
  if (cacheDir !== undefined || existsSync(usual)) return await BlobStore.existing(usual, { isShared });
  const used = await cachesInUse();
  const [only, ...others] = used;
  if (only === undefined) return await BlobStore.existing(usual, { isShared });
  const directories = used.map(({ directory }) => directory);
  if (others.length === 0) {
    const words = `the daemon that is running has its own at ${only.directory}`;
    process.stderr.write(`tmaxfs: there is no cache at ${usual}; ${words}\n`);
    return await BlobStore.existing(only.directory, { isShared: only.isShared });
  }
  const message = `there is no cache at ${usual}, and the daemons that are running have several; name one with --cache-dir: `;
  throw new TmaxError('EINVAL', message + directories.join(', '), { source: 'cli' });
}

type CacheInUse = Pick<Status['cache'], 'directory' | 'isShared'>;

/** Each once. Of others' daemons the cache is not ours to look at, unless they share it with us. */
async function cachesInUse(): Promise<readonly CacheInUse[]> {
  const found = new Map<string, CacheInUse>();
  for (const { cache } of await allDaemons()) {
    if (isForUs(cache)) found.set(cache.directory, cache);
  }
  return [...found.values()].sort((a, b) => (a.directory < b.directory ? -1 : 1));
}

function isForUs({ directory, isShared }: CacheInUse): boolean {
  try {
    if (!isShared) return statSync(directory).uid === process.getuid?.();
    accessSync(directory, constants.R_OK | constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
