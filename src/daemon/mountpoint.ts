/** Mount points as the kernel's mount table names them. */

import { realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';

/**
 * The absolute path of a mount point, free of symbolic links. The last step is left as it is where it can't be looked at:
 * it may not exist yet, or be the mount of a daemon that has died.
 */
export function realMountpoint(text: string): string {
  const path = resolve(text);
  try {
    return realpathSync(path);
  } catch {
    // Whatever is wrong with it is reported, with its errno, by whoever is about to use the path.
  }
  try {
    return join(realpathSync(dirname(path)), basename(path));
  } catch {
    return path;
  }
}
