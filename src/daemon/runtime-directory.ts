/**
 * Where a daemon keeps its control socket, and how its clients find that: they ask the mount itself, by an extended
 * attribute of its root, and so need nothing of the daemon's environment.
 */

import { createHash } from 'node:crypto';
import { lstatSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TmaxError } from '../errors.js';
import { makeFolder } from '../folders.js';

/** Extended attribute of the mount's root that holds the path of the control socket, without its "user.tmaxfs." */
export const CONTROL_ATTRIBUTE = 'control';

/** Path for the control socket of a mount point; its folder is made, 0700. Errors: EPERM the folder is another user's. */
export function controlSocketPath(
  mountpoint: string,
  environment: Readonly<Record<string, string | undefined>>,
): string {
  const uid = process.getuid?.() ?? 0;
  const folder =
    uid === 0
      ? '/run/tmaxfs'
      : environment['XDG_RUNTIME_DIR']
        ? join(environment['XDG_RUNTIME_DIR'], 'tmaxfs')
        : join(tmpdir(), `tmaxfs-${uid}`);
  makeFolder(folder, 0o700);
  const stats = lstatSync(folder);
  if (!stats.isDirectory() || stats.uid !== uid || (stats.mode & 0o022) !== 0) {
    throw new TmaxError('EPERM', `${folder} is not a folder of this user alone; remove it, or set XDG_RUNTIME_DIR`, {
      source: 'daemon',
      level: 'error',
    });
  }
  // A Unix socket's path has room for 107 bytes: a mount point's own may not fit.
  return join(folder, `${createHash('sha256').update(mountpoint).digest('hex').slice(0, 16)}.sock`);
}
