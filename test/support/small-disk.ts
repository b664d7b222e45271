/** Disks of their own for tests: an image file, made a file system and mounted through a loop device. Needs root. */

import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { eventually } from './mount-client.js';
import { type Lifetime, temporaryFolder } from './temporary.js';

export interface SmallDisk {
  /** Where it is mounted; the root of the file system, or of the part of it that has a quota. */
  readonly path: string;
  readonly mountpoint: string;
  /** The file behind it. */
  readonly image: string;
}

/** An ext4 without blocks for root alone. `options`: further words of mkfs.ext4. */
export async function ext4Disk(
  t: Lifetime,
  sizeBytes: number,
  {
    options = [],
    folder = temporaryFolder(t),
  }: { readonly options?: readonly string[]; readonly folder?: string } = {},
): Promise<SmallDisk> {
  const image = imageIn(folder, sizeBytes);
  await execa('mkfs.ext4', ['-q', '-m', '0', ...options, image]);
  const mountpoint = await mountImage(t, folder, image);
  return { path: mountpoint, mountpoint, image };
}

/** btrfs can't be smaller than this. */
const BTRFS_BYTES = 128 * 2 ** 20;

/** A subvolume of a btrfs that may take `quotaBytes`, which statfs does not tell. */
export async function quotaDisk(t: Lifetime, quotaBytes: number): Promise<SmallDisk> {
  const folder = temporaryFolder(t);
  const image = imageIn(folder, BTRFS_BYTES);
  await execa('mkfs.btrfs', ['-q', '-m', 'single', image]);
  const mountpoint = await mountImage(t, folder, image);
  const path = join(mountpoint, 'limited');
  await execa('btrfs', ['quota', 'enable', mountpoint]);
  await execa('btrfs', ['subvolume', 'create', path]);
  await execa('btrfs', ['qgroup', 'limit', String(quotaBytes), path]);
  return { path, mountpoint, image };
}

/** Takes every byte that the disk still has. */
export async function fill({ path }: SmallDisk): Promise<void> {
  await execa('dd', ['if=/dev/zero', `of=${join(path, FILLER)}`, 'bs=64k'], { reject: false });
  // What is less than a block of dd's.
  await execa('dd', ['if=/dev/zero', `of=${join(path, `${FILLER}-rest`)}`, 'bs=512'], { reject: false });
}

/** Gives back what `fill` took. */
export async function drain({ path }: SmallDisk): Promise<void> {
  await execa('rm', ['-f', join(path, FILLER), join(path, `${FILLER}-rest`)]);
}

export async function remount({ mountpoint }: SmallDisk, mode: 'ro' | 'rw'): Promise<void> {
  await execa('mount', ['-o', `remount,${mode}`, mountpoint]);
}

/** For good: also in the namespaces that other tests have made meanwhile, which have copies of all mounts until they end. */
export async function unmount({ mountpoint, image }: SmallDisk): Promise<void> {
  await execa('umount', [mountpoint]);
  const isFree = async () => (await execa('losetup', ['--associated', image])).stdout === '' || undefined;
  await eventually('nobody has the disk mounted', isFree, OTHERS_LIMIT_MS);
}

const OTHERS_LIMIT_MS = 100_000;
const FILLER = 'filler';

function imageIn(folder: string, sizeBytes: number): string {
  const image = join(folder, 'disk.img');
  writeFileSync(image, '');
  truncateSync(image, sizeBytes);
  return image;
}

async function mountImage(t: Lifetime, folder: string, image: string): Promise<string> {
  const mountpoint = join(folder, 'disk');
  mkdirSync(mountpoint);
  // Its loop device goes with the mount.
  await execa('mount', ['-o', 'loop', image, mountpoint]);
  t.teardown(() => execa('umount', ['--lazy', mountpoint], { reject: false }));
  return mountpoint;
}

/** A file system in memory: what is synced there costs nothing. */
export async function memoryDisk(t: Lifetime): Promise<string> {
  const folder = temporaryFolder(t);
  await execa('mount', ['-t', 'tmpfs', 'tmpfs', folder]);
  t.teardown(() => execa('umount', ['--lazy', folder]));
  return folder;
}
