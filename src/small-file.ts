/** Small files of the cache directory, read and removed with care for what else may lie in their place. */

import { closeSync, fstatSync, readSync } from 'node:fs';
import { lstat, rename, rmdir, unlink } from 'node:fs/promises';
import { systemErrorCode } from './errors.js';
import { openReadOnly } from './read-only-file.js';

/** Records and proofs have a few hundred bytes. */
const MAX_SMALL_FILE_BYTES = 64 * 1024;

/** Text of a regular file of a sensible size; undefined where there is none, or something else. Synchronous: leases wait on it. */
export function readSmallFile(path: string): string | undefined {
  let descriptor: number;
  try {
    descriptor = openReadOnly(path);
  } catch (error) {
    if (isStrange(error)) return undefined;
    throw error;
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile() || stats.size > MAX_SMALL_FILE_BYTES) return undefined;
    const bytes = Buffer.alloc(stats.size);
    return bytes.toString('utf8', 0, readSync(descriptor, bytes, 0, bytes.length, 0));
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Removes what lies where a file of ours belongs and is none: a link, a device, an empty folder. A folder with something in
 * it is somebody's, and stays; and so does all of a disk that is read-only. False where it stays.
 */
export async function removeStray(path: string): Promise<boolean> {
  try {
    const stats = await lstat(path);
    await (stats.isDirectory() ? rmdir(path) : unlink(path));
    return true;
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === 'ENOENT') return true;
    if (code === 'ENOTEMPTY' || code === 'EEXIST' || code === 'EBUSY' || code === 'EROFS') return false;
    throw error;
  }
}

/** rename(2) that also takes the place of an empty folder. */
export async function renameOver(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if (systemErrorCode(error) !== 'EISDIR' || !(await removeStray(to))) throw error;
    await rename(from, to);
  }
}

/** Errors of open(2) that say: not there, or not a file. */
export function isStrange(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'ELOOP', 'ENXIO', 'ENODEV', 'EISDIR'].includes(systemErrorCode(error) ?? '');
}
