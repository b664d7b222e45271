/** Which locks a cache directory has: the kernel's where they work there, else lease files; the same for all who use it. */

import { closeSync, constants, openSync, readdirSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { systemErrorCode } from '../errors.js';
import { flock } from '../libc.js';
import { temporaryFor } from '../temporary-file.js';
import { makeCacheFolderNow } from './cache-folder.js';
import type { CacheLayout } from './cache-layout.js';
import { type FileLocks, KernelLocks } from './file-locks.js';
import { LeaseFiles } from './lease-files.js';
import { locksAreLocal } from './local-locks.js';

/** Errors of flock(2) that say: this file system has no such locks. */
const NO_LOCKS = ['ENOLCK', 'ENOSYS', 'EOPNOTSUPP', 'ENOTSUP', 'EINVAL'];
/** Errors of making a file that say: nobody writes here, or a full disk does not let us try. Then nothing is known against them. */
const NO_TRIAL = ['EROFS', 'EACCES', 'EPERM', 'ENOSPC', 'EDQUOT'];

/** Tries it out, and makes lease files known to all where they are needed. Errors: those of the disk. */
export function chooseLocks(layout: CacheLayout): FileLocks {
  const present = presentLocks(layout);
  if (present.isKernel && kernelLocksWork(layout.reservations) && !locksAreLocal(layout.root)) return present;
  // Last the one that others know them by.
  const shards = layout.sharing === undefined ? [] : layout.lockShards;
  for (const folder of [...shards, layout.lockOwners]) makeCacheFolderNow(layout, folder);
  return new LeaseFiles(layout);
}

/** Those that others who use the directory have chosen; touches nothing. */
export function presentLocks(layout: CacheLayout): FileLocks {
  try {
    readdirSync(layout.lockOwners);
    return new LeaseFiles(layout);
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return new KernelLocks();
    throw error;
  }
}

/**
 * Whether flock(2) keeps anybody out in this folder, tried with two open files of one: some network file systems grant
 * every lock, others have none.
 */
function kernelLocksWork(folder: string): boolean {
  const path = temporaryFor(join(folder, 'probe'));
  const descriptors: number[] = [];
  try {
    descriptors.push(openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600));
    descriptors.push(openSync(path, constants.O_RDWR));
    const [first = -1, second = -1] = descriptors;
    return flock(first, 'exclusiveNonBlocking') && !flock(second, 'exclusiveNonBlocking');
  } catch (error) {
    const code = systemErrorCode(error) ?? '';
    if (NO_LOCKS.includes(code)) return false;
    if (descriptors.length === 0 && NO_TRIAL.includes(code)) return true;
    throw error;
  } finally {
    for (const descriptor of descriptors) closeSync(descriptor);
    if (descriptors.length > 0) unlinkSync(path);
  }
}
