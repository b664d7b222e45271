/** What lies in a folder of the cache, where other processes publish, evict and remove at any time. */

import type { Stats } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { systemErrorCode } from '../errors.js';
import { isStrange } from '../small-file.js';

/** Whether what a descriptor was opened on, and `held` was read from, still has this name. Errors: those of the disk. */
export async function isSameFile(path: string, held: Stats): Promise<boolean> {
  const named = await lstatIfThere(path);
  return named !== undefined && named.ino === held.ino && named.dev === held.dev;
}

/** Undefined where there is nothing. Errors: those of the disk. */
export async function lstatIfThere(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** Nothing, where somebody has removed the folder: it is made again once it is needed. */
export async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (isStrange(error)) return [];
    throw error;
  }
}
