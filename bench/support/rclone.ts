/** `rclone mount` of a local folder, as the peer that everybody has: cached on disk, read-only. */

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { execa, execaSync } from 'execa';
import { topMountAt } from '../../src/fuse/mount-table.js';
import { eventually } from '../../test/support/mount-client.js';
import { type Lifetime, temporaryFolder } from '../../test/support/temporary.js';

export const hasRclone = !execaSync('rclone', ['version'], { reject: false }).failed;

/** Mounts `folder` and returns the mount point. */
export async function mountByRclone(lifetime: Lifetime, folder: string): Promise<string> {
  const work = temporaryFolder(lifetime);
  const [mountpoint, cache] = [join(work, 'mnt'), join(work, 'cache')];
  mkdirSync(mountpoint);
  const options = ['--read-only', '--vfs-cache-mode', 'full', '--cache-dir', cache, '--config', '/dev/null'];
  const rclone = execa('rclone', ['mount', folder, mountpoint, ...options], { reject: false });
  lifetime.teardown(async () => {
    await execa('umount', ['-l', mountpoint], { reject: false });
    // It would wait for ever where another mount namespace keeps the mount.
    rclone.kill('SIGKILL');
    await rclone;
  });
  await eventually('rclone has mounted', () => topMountAt(mountpoint) !== undefined || undefined);
  return mountpoint;
}
