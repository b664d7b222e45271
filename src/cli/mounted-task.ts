/** Which file of a mount a command is about: the task that was named, or the smallest that there is. */

import { lstat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { TmaxError } from '../errors.js';
import { readExtendedAttribute } from '../libc.js';
import { mountedFolders } from './mounted-folders.js';

/** The state of a file's blob: `user.tmaxfs.state` of docs/SEMANTICS.md. */
export type BlobState = string;

export interface MountedTask {
  /** Absolute. */
  readonly path: string;
  /** Below the mount point, as "variant/task.sif". */
  readonly name: string;
  readonly sizeBytes: number;
  readonly state: BlobState;
}

/** Calls to the mount at one time; it answers them from memory. */
const CALLS_AT_ONCE = 64;
/** So many of the smallest are asked for their state, until one will do. */
const MAX_CANDIDATES = 1000;
const READY = 'ready';
const REFUSED = 'quarantined';

/**
 * A task named as "task", "variant/task", with or without ".sif", or by its path. Of several variants' the first in the order
 * of the tree. Errors: ENOENT there is none of that name.
 */
export async function namedTask(mountpoint: string, name: string): Promise<MountedTask> {
  const inner = name.startsWith('/') ? relative(mountpoint, name) : name;
  const file = inner.endsWith('.sif') ? inner : `${inner}.sif`;
  for (const candidate of await placesOf(mountpoint, file)) {
    const path = join(mountpoint, candidate);
    const stats = candidate.startsWith('..') ? undefined : await lstat(path).catch(() => undefined);
    if (stats?.isFile()) {
      return { path, name: candidate, sizeBytes: stats.size, state: await stateOf(path) };
    }
  }
  throw new TmaxError(
    'ENOENT',
    `${mountpoint} has no task ${name}; "tmaxfs coverage ${mountpoint}" counts what it has`,
    {
      source: 'cli',
    },
  );
}

/**
 * The smallest image that is not refused; with `onDisk`, of those that are ready.
 * Errors: ENOENT there is none.
 */
export async function smallestTask(mountpoint: string, { onDisk }: { readonly onDisk: boolean }): Promise<MountedTask> {
  const bySize = (await allFiles(mountpoint)).sort((a, b) => a.sizeBytes - b.sizeBytes);
  // With nothing on disk, the state of every one would be asked for in vain.
  const candidates = onDisk ? bySize : bySize.slice(0, MAX_CANDIDATES);
  for (const candidate of candidates) {
    const state = await stateOf(candidate.path);
    if (onDisk ? state === READY : state !== REFUSED) return { ...candidate, state };
  }
  const which = onDisk ? 'is on this disk, and the mount is offline' : 'can be opened';
  throw new TmaxError('ENOENT', `no image of ${mountpoint} ${which}`, { source: 'cli' });
}

/** As it is named, then wherever a folder's own path ends so. */
async function placesOf(mountpoint: string, file: string): Promise<readonly string[]> {
  const slash = file.lastIndexOf('/');
  const named = file.slice(0, Math.max(0, slash));
  const folders = (await mountedFolders(mountpoint)).map(({ path }) => path);
  const ending = folders.filter((path) => named === '' || path === named || path.endsWith(`/${named}`));
  return [...(slash < 0 ? [] : [file]), ...ending.map((path) => join(path, file.slice(slash + 1)))];
}

async function allFiles(mountpoint: string): Promise<Omit<MountedTask, 'state'>[]> {
  const found: Omit<MountedTask, 'state'>[] = [];
  for (const folder of await mountedFolders(mountpoint)) {
    const names = folder.files.map((file) => join(folder.path, file));
    for (let start = 0; start < names.length; start += CALLS_AT_ONCE) {
      const files = names.slice(start, start + CALLS_AT_ONCE).map(async (name) => {
        const path = join(mountpoint, name);
        return { path, name, sizeBytes: (await lstat(path)).size };
      });
      found.push(...(await Promise.all(files)));
    }
  }
  return found;
}

async function stateOf(path: string): Promise<BlobState> {
  return (await readExtendedAttribute(path, 'user.tmaxfs.state')).toString('utf8');
}
