/** How files of the cache are opened for reading: never through a link, never waiting for a writer, and without a trace in their access time. */

import { constants, openSync } from 'node:fs';
import { systemErrorCode } from './errors.js';

/**
 * A descriptor for reading, closed on exec. The access time of a blob is when it was last used (blobs/blob-store.ts), so
 * reading it to prove it must not change that; only the file's owner and root may ask for this, others go without.
 * `flags` are added to those of open(2). Errors: those of open(2), ELOOP for a symbolic link.
 */
export function openReadOnly(path: string, flags = 0): number {
  // What lies there may be anything, a FIFO included: whoever opens it looks at what it is (fstat) before reading.
  const base = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | flags;
  try {
    return openSync(path, base | constants.O_NOATIME);
  } catch (error) {
    if (systemErrorCode(error) !== 'EPERM') throw error;
    return openSync(path, base);
  }
}
