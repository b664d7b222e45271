/** Mount points as the kernel's mount table names them, found without touching a mount: its daemon may hang. */

import { readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { TmaxError } from '../errors.js';
import { type Mount, readMounts, tmaxfsMounts } from '../fuse/mount-table.js';

/** As many symbolic links as the kernel follows. */
const MAX_LINKS = 40;

/**
 * The absolute path of a mount point, free of symbolic links. Nothing on a mount of tmaxfs is looked at, not even its root.
 * The last step is left as it is where it does not exist. Errors: EINVAL there is none.
 */
export function realMountpoint(text: string, mounts: readonly Mount[] = readMounts()): string {
  // An unset variable of a script would stand for the working directory.
  if (text === '') throw new TmaxError('EINVAL', 'the mount point is ""; name a folder', { source: 'settings' });
  const ours = tmaxfsMounts(mounts).map(({ mountpoint }) => mountpoint);
  const isOnMount = (path: string) => ours.some((mount) => path === mount || path.startsWith(`${mount}/`));
  let path = resolve(text);
  for (let links = 0; links < MAX_LINKS; links += 1) {
    if (isOnMount(path)) return path;
    try {
      path = join(realpathSync(dirname(path)), basename(path));
      if (isOnMount(path)) return path;
      path = resolve(dirname(path), readlinkSync(path));
    } catch {
      // No link, or not there: whatever is wrong with it is reported, with its errno, by whoever is about to use the path.
      return path;
    }
  }
  return path;
}
