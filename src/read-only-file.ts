/** How files of the cache are opened for reading: never through a link, and without a trace in their access time. */

import { constants, openSync } from 'node:fs';
import { systemErrorCode } from './errors.js';

/**
 * A descriptor for reading, closed on exec. The access time of a blob is when it was last used (blobs/blob-store.ts), so
 * reading it to prove it must not change that; only the file's owner and root may ask for this, others go without.
 * `flags` are added to those of open(2). Errors: those of open(2), ELOOP for a symbolic link.
 */
export function openReadOnly(path: string, flags = 0): number {
  const base = constants.O_RDONLY | constants.O_NOFOLLOW | flags;
  try {
    return openSync(path, base | constants.O_NOATIME);
  } catch (error) {
    if (systemErrorCode(error) !== 'EPERM') throw error;
    return openSync(path, base);
  }
}
