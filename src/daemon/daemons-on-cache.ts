/** Which daemons there are, and which of them serve from a cache directory, as far as this user may ask them. */

import { realpathSync } from 'node:fs';
import { tmaxfsMounts } from '../fuse/mount-table.js';
import { askDaemon } from './control-client.js';
import type { Status } from './status.js';

/** Those that serve from it. */
export async function daemonsOn(directory: string): Promise<readonly Status[]> {
  const wanted = realPath(directory);
  return (await allDaemons()).filter(({ cache }) => realPath(cache.directory) === wanted);
}

/** Those that do not answer, or not to this user, are left out: what they use can't be known. */
export async function allDaemons(): Promise<readonly Status[]> {
  const mountpoints = new Set(tmaxfsMounts().map(({ mountpoint }) => mountpoint));
  const answers = await Promise.all(
    // The daemon is of this package: its documents are of our own types.
    [...mountpoints].map(
      (mountpoint) => askDaemon(mountpoint, '/status').catch(() => undefined) as Promise<Status | undefined>,
    ),
  );
  return answers.filter((status) => status !== undefined);
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    // Not there for this process: then it is no other's path.
    return path;
  }
}
