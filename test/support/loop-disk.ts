/** A small disk of its own, in a file: for what only some file systems can, and for one that is full. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { flipBit } from './bit-rot.js';
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

/** A disk whose kernel can watch over files. */
export interface VerityDisk {
  readonly folder: string;
  /** Changes a byte of a file where it lies on the disk, behind the back of the file system. */
  flip(path: string, atByte: number): Promise<void>;
}

/** Whether this kernel has fs-verity. */
export const hasVerity = existsSync('/sys/fs/ext4/features/verity');

/** Mounts a fresh ext4 with fs-verity, unmounted with the test. */
export async function verityDisk(lifetime: Lifetime, sizeBytes = 64 * 2 ** 20): Promise<VerityDisk> {
  const folder = temporaryFolder(lifetime);
  const [image, mountpoint] = [join(folder, 'image'), join(folder, 'disk')];
  await execa('truncate', ['--size', String(sizeBytes), image]);
  await execa('mkfs.ext4', ['-q', '-b', '4096', '-O', 'verity', image]);
  await execa('mkdir', [mountpoint]);
  const mount = () => execa('mount', ['-o', 'loop', image, mountpoint]);
  await mount();
  lifetime.teardown(() => execa('umount', ['-l', mountpoint]).then(() => undefined));
  const flip = async (path: string, atByte: number): Promise<void> => {
    await execa('umount', [mountpoint]);
    const block = Math.floor(atByte / 4096);
    const { stdout } = await execa('debugfs', ['-R', `bmap ${path.slice(mountpoint.length)} ${block}`, image]);
    flipBit(image, Number(stdout) * 4096 + (atByte % 4096));
    await mount();
  };
  return { folder: mountpoint, flip };
}

/** Mounts memory of that size, unmounted with the test. */
export async function memoryFolder(lifetime: Lifetime, sizeBytes: number): Promise<string> {
  const folder = temporaryFolder(lifetime);
  await execa('mount', ['-t', 'tmpfs', '-o', `size=${sizeBytes}`, 'tmpfs', folder]);
  lifetime.teardown(() => execa('umount', ['-l', folder]).then(() => undefined));
  return folder;
}
