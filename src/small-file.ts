/** Small files of the cache directory, read and removed with care for what else may lie in their place. */

import { closeSync, fstatSync, readSync } from 'node:fs';
import { chmod, lstat, rename, rm, rmdir, unlink, writeFile } from 'node:fs/promises';
import { systemErrorCode } from './errors.js';
import { openReadOnly } from './read-only-file.js';
import { temporaryFor } from './temporary-file.js';

/** Records and proofs have a few hundred bytes. */
const MAX_SMALL_FILE_BYTES = 64 * 1024;

/**
 * Text of a regular file of a sensible size; undefined where there is none, or something else, or one that is not for this user.
 * Synchronous: leases wait on it. Errors: those of the disk.
 */
export function readSmallFile(path: string): string | undefined {
  let descriptor: number;
  try {
    descriptor = openReadOnly(path);
  } catch (error) {
    if (isStrange(error) || isForbidden(error)) return undefined;
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

/** Gives a small file its next content, whole. Not synced. `mode`: whatever the umask. Errors: those of the disk. */
export async function replaceSmallFile(path: string, text: string, mode?: number): Promise<void> {
  const temporary = temporaryFor(path);
  try {
    await writeFile(temporary, text, { mode: 0o644, flag: 'wx' });
    if (mode !== undefined) await chmod(temporary, mode);
    await renameOver(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/**
 * Removes what lies where a file of ours belongs and is none: a link, a device, an empty folder. A folder with something in
 * it is somebody's, and stays; and so does all of a disk that is read-only, and what others keep. False where it stays.
 */
export async function removeStray(path: string): Promise<boolean> {
  try {
    const stats = await lstat(path);
    await (stats.isDirectory() ? rmdir(path) : unlink(path));
    return true;
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === 'ENOENT') return true;
    // EPERM: another user's, in a folder with the sticky bit.
    if (['ENOTEMPTY', 'EEXIST', 'EBUSY', 'EROFS', 'EPERM'].includes(code ?? '')) return false;
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

/** Errors of open(2) that say: another user's. */
export function isForbidden(error: unknown): boolean {
  return ['EACCES', 'EPERM'].includes(systemErrorCode(error) ?? '');
}

/** Errors of open(2) that say: not there, or not a file. */
export function isStrange(error: unknown): boolean {
  return ['ENOENT', 'ENOTDIR', 'ELOOP', 'ENXIO', 'ENODEV', 'EISDIR'].includes(systemErrorCode(error) ?? '');
}
