/** Which cache directory a command means that needs no daemon. */

import { existsSync, statSync } from 'node:fs';
import { allDaemons } from '../daemon/daemons-on-cache.js';
import { chooseCacheDirectory } from '../daemon/settings.js';
import { TmaxError } from '../errors.js';

/**
 * The one named; else the user's own; where there is none, that of this user's running daemons, which is told on standard error.
 * Errors: EINVAL no path, or daemons with different caches.
 */
export async function chooseCache(named: string | undefined): Promise<string> {
  const usual = chooseCacheDirectory(named, process.env);
  if (named !== undefined || existsSync(usual)) return usual;
  const used = await cachesInUse();
  const [only, ...others] = used;
  if (only === undefined) return usual;
  if (others.length === 0) {
    process.stderr.write(`tmaxfs: there is no cache at ${usual}; the daemon that is running has its own at ${only}\n`);
    return only;
  }
  const message = `there is no cache at ${usual}, and the daemons that are running have several; name one with --cache-dir: `;
  throw new TmaxError('EINVAL', message + used.join(', '), { source: 'cli' });
}

/** Of others' daemons the cache is not ours to look at. */
async function cachesInUse(): Promise<readonly string[]> {
  const directories = (await allDaemons()).map(({ cache }) => cache.directory);
  return [...new Set(directories)].filter(isOurs).sort();
}

function isOurs(directory: string): boolean {
  return statSync(directory, { throwIfNoEntry: false })?.uid === process.getuid?.();
}
