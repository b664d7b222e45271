/**
 * Files that are replaced whole are written under a temporary name beside their own, then renamed. A kill in between leaves
 * the temporary; it is removed by a later start, once it is too old to be one that another process is just writing.
 */

import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { lstat, open, readdir, rename, rm, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { systemErrorCode } from './errors.js';

const SUFFIX = '.tmp';
/** Writing one takes milliseconds; a disk that hangs may make it minutes. */
const LEFT_AFTER_MS = 10 * 60_000;

/** Where the next content of `path` is to be written, before it is renamed to `path`. */
export function temporaryFor(path: string): string {
  return `${path}.${randomBytes(6).toString('hex')}${SUFFIX}`;
}

export function isTemporary(name: string): boolean {
  return name.endsWith(SUFFIX);
}

/** Whether a file that was written to last at that time can't be one that a process is just writing. */
export function isLeft(modifiedAtMs: number): boolean {
  return modifiedAtMs < Date.now() - LEFT_AFTER_MS;
}

/**
 * Gives a file its next content, whole and for good: whatever happens, it is the one before or this one. `mode`: whatever the
 * umask; if left out, it is readable as far as that allows.
 */
export async function replaceFile(path: string, text: string, mode?: number): Promise<void> {
  const temporary = temporaryFor(path);
  try {
    const file = await open(temporary, 'wx', 0o644);
    try {
      await file.writeFile(text);
      if (mode !== undefined) await file.chmod(mode);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Lets the names in a folder last. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Removes the temporaries that earlier processes have left in a folder. Errors: as `removeIfLeft`. */
export async function removeLeftTemporaries(folder: string): Promise<void> {
  for (const name of await readdir(folder)) if (isTemporary(name)) await removeIfLeft(join(folder, name));
}

/** Removes a file that nobody has written to for long. Errors: those of the disk, but for a read-only one, and for a file that others keep. */
export async function removeIfLeft(path: string): Promise<void> {
  try {
    const stats = await lstat(path);
    if (stats.isFile() && isLeft(stats.mtimeMs)) await unlink(path);
  } catch (error) {
    const code = systemErrorCode(error);
    // EPERM: another user's, in a folder with the sticky bit.
    if (code !== 'ENOENT' && code !== 'EROFS' && code !== 'EPERM') throw error;
  }
}
