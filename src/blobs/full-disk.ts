/**
 * A disk, or a quota on it, that turns out to be full in the middle of a fetch: filled by others, since our own room was
 * reserved. Blobs that nobody holds make room for it, once; what does not fit even then fails alone, with the numbers.
 */

import type { Logger } from 'pino';
import { counted } from '../counted.js';
import { messageOf, TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { Capacity } from './capacity.js';

/**
 * What `attempt` answers; where it finds the disk full, it is asked once more after room was made for `missingBytes`
 * (asked for only then). `keep`: blobs that are not evicted for it.
 * Errors: ENOSPC with the numbers; those of `attempt`.
 */
export async function withRelief<Result>(
  { capacity, log }: { readonly capacity: Capacity; readonly log: Logger },
  { sha256, sizeBytes, path }: BlobAddress,
  keep: ReadonlySet<string>,
  missingBytes: () => number,
  attempt: () => Promise<Result>,
): Promise<Result> {
  try {
    return await attempt();
  } catch (first) {
    if (!isFull(first)) throw first;
    const { evictedBytes, availableBytes } = await capacity.relieve(missingBytes(), new Set([...keep, sha256]));
    const relieved = { blob: sha256, evictedBytes, availableBytes, reason: messageOf(first) };
    log.warn(relieved, `the disk of the cache filled up during a fetch: ${evictedBytes} bytes were evicted`);
    let last = first;
    if (evictedBytes > 0) {
      try {
        return await attempt();
      } catch (second) {
        if (!isFull(second)) throw second;
        last = second;
      }
    }
    const { usedBytes, limitBytes, leasedBlobs } = capacity.use();
    throw new TmaxError(
      'ENOSPC',
      `${path}: ${messageOf(last)}; ${missingBytes()} of ${sizeBytes} bytes are missing, ${evictedBytes} were evicted for them; ` +
        `the cache counts ${usedBytes} bytes of its ${limitBytes}, ${counted(leasedBlobs, 'image')} held open, and the disk has ` +
        `${Math.max(0, availableBytes)} bytes to give`,
      { cause: last, source: 'cache', level: 'error' },
    );
  }
}

/** Whether this is why a fetch has failed. */
export function isFull(error: unknown): error is TmaxError {
  return error instanceof TmaxError && error.errno === 'ENOSPC';
}
