/** A small disk of its own, in a file: for what only some file systems can, and for one that is full. */

import { join } from 'node:path';
import { execa } from 'execa';
import { type Lifetime, temporaryFolder } from './temporary.js';

/** Mounts a fresh btrfs, unmounted with the test. Its files can share their bytes. */
export async function btrfsFolder(lifetime: Lifetime, sizeBytes = 256 * 2 ** 20): Promise<string> {
  const folder = temporaryFolder(lifetime);
  const [image, mountpoint] = [join(folder, 'image'), join(folder, 'disk')];
  await execa('truncate', ['--size', String(sizeBytes), image]);
  await execa('mkfs.btrfs', ['--quiet', image]);
  await execa('mkdir', [mountpoint]);
  await execa('mount', ['-o', 'loop', image, mountpoint]);
  lifetime.teardown(() => execa('umount', ['-l', mountpoint]).then(() => undefined));
  return mountpoint;
}

/** Mounts memory of that size, unmounted with the test. */
export async function memoryFolder(lifetime: Lifetime, sizeBytes: number): Promise<string> {
  const folder = temporaryFolder(lifetime);
  await execa('mount', ['-t', 'tmpfs', '-o', `size=${sizeBytes}`, 'tmpfs', folder]);
  lifetime.teardown(() => execa('umount', ['-l', folder]).then(() => undefined));
  return folder;
}
