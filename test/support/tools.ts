/** The tools of others against which images are built and read: mksquashfs, unsquashfs, the kernel's own squashfs. */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  type Stats,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Tree, TreeEntry } from './squashfs-reader.js';

/** A folder for one test; the caller removes it. */
export function temporaryFolder(): string {
  return mkdtempSync(join(tmpdir(), 'tmaxfs-test-'));
}

/** The squashfs that mksquashfs makes of a folder with these options, as ['-comp', 'zstd']. */
export function makeSquashfs(folder: string, options: readonly string[]): Buffer {
  const work = temporaryFolder();
  try {
    const image = join(work, 'image.squashfs');
    execFileSync('mksquashfs', [folder, image, '-noappend', '-quiet', '-no-progress', ...options]);
    return readFileSync(image);
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** What unsquashfs extracts from the partition at `offset`. */
export function treeByUnsquashfs(image: string, offset: number): Tree {
  const work = temporaryFolder();
  try {
    const target = join(work, 'tree');
    execFileSync('unsquashfs', ['-quiet', '-no-progress', '-dest', target, '-offset', String(offset), image]);
    return treeOfFolder(target);
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** What the kernel shows of it, through a loop device of the partition's size. Throws if it can't be mounted. */
export function treeByKernel(image: string, offset: number, sizeBytes: number): Tree {
  const work = temporaryFolder();
  const mountpoint = join(work, 'mount');
  mkdirSync(mountpoint);
  try {
    const options = `ro,loop,offset=${offset},sizelimit=${sizeBytes}`;
    execFileSync('mount', ['-t', 'squashfs', '-o', options, image, mountpoint], { stdio: 'pipe' });
    try {
      return treeOfFolder(mountpoint);
    } finally {
      // Lazily: a process that another thread is starting may hold one of our descriptors until it executes.
      execFileSync('umount', ['--lazy', mountpoint]);
    }
  } finally {
    rmSync(work, { recursive: true });
  }
}

function treeOfFolder(root: string): Tree {
  const tree = new Map<string, TreeEntry>();
  const visit = (path: string): void => {
    const absolute = Buffer.from(path === '' ? root : `${root}/${path}`, 'latin1');
    const status = lstatSync(absolute);
    const kind = kindOf(status);
    tree.set(path, {
      kind,
      mode: (status.mode & 0o7777).toString(8),
      uid: status.uid,
      gid: status.gid,
      modifiedSeconds: Math.floor(status.mtimeMs / 1000),
      content: contentOf(kind, absolute, status.size),
    });
    if (kind !== 'directory') return;
    for (const name of readdirSync(absolute, 'latin1')) visit(path === '' ? name : `${path}/${name}`);
  };
  visit('');
  return tree;
}

function kindOf(status: Stats): string {
  if (status.isDirectory()) return 'directory';
  if (status.isFile()) return 'file';
  if (status.isSymbolicLink()) return 'symlink';
  if (status.isBlockDevice()) return 'block-device';
  if (status.isCharacterDevice()) return 'character-device';
  return status.isFIFO() ? 'fifo' : 'socket';
}

function contentOf(kind: string, path: Buffer, sizeBytes: number): string {
  if (kind === 'symlink') return readlinkSync(path, 'latin1');
  if (kind !== 'file') return '';
  return `${sizeBytes} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`;
}
