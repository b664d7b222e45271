/**
 * Many blobs made ready ahead of their first open: behind every fetch that an open waits for, without holding anything
 * open, and without evicting one of them for another. What is there already is passed over, so that a second run goes on
 * where the first was ended.
 */

import { setMaxListeners } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { messageOf, type TmaxError, toTmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { BlobCache } from './blob-cache.js';
import type { OpenLabel } from './blob-report.js';

export interface WantedBlob {
  readonly address: BlobAddress;
  /** One of the tasks that it is wanted for. */
  readonly label: OpenLabel;
}

export interface PrefetchProgress {
  readonly blobs: number;
  readonly readyBlobs: number;
  readonly failedBlobs: number;
  readonly bytes: number;
  /** Of blobs that are ready, and what has arrived of those under way. */
  readonly readyBytes: number;
}

export interface PrefetchFailure {
  readonly variant: string;
  readonly task: string;
  readonly path: string;
  readonly errno: string;
  readonly message: string;
}

export interface PrefetchOptions {
  /** Blobs asked for at one time; the cache has its own bound on fetches. */
  readonly concurrency: number;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: PrefetchProgress) => void;
  readonly onFailure: (failure: PrefetchFailure) => void;
}

const PROGRESS_INTERVAL_MS = 500;

/**
 * Resolves when every blob (by sha256) is ready or has failed; failures end nothing.
 * Errors: ENOSPC before anything is fetched, with the numbers, where they can't all be on disk at one time; EINTR aborted.
 */
export async function prefetch(
  cache: Pick<BlobCache, 'bring' | 'checkFits' | 'state'>,
  wanted: ReadonlyMap<string, WantedBlob>,
  { concurrency, signal, onProgress, onFailure }: PrefetchOptions,
): Promise<PrefetchProgress> {
  await cache.checkFits(new Map([...wanted].map(([sha256, { address }]) => [sha256, address])));
  setMaxListeners(0, signal);
  const keep = new Set(wanted.keys());
  const running = new Set<string>();
  const bytes = [...wanted.values()].reduce((sum, { address }) => sum + address.sizeBytes, 0);
  const done = { blobs: 0, bytes: 0, failed: 0 };
  const progress = (): PrefetchProgress => {
    let arrivedBytes = 0;
    for (const sha256 of running) {
      const state = cache.state(sha256);
      if ('receivedBytes' in state) arrivedBytes += state.receivedBytes;
    }
    const readyBytes = done.bytes + arrivedBytes;
    return { blobs: wanted.size, readyBlobs: done.blobs, failedBlobs: done.failed, bytes, readyBytes };
  };
  const bringOne = async (sha256: string, { address, label }: WantedBlob): Promise<void> => {
    running.add(sha256);
    try {
      await cache.bring(address, label, signal, keep);
      done.blobs += 1;
      done.bytes += address.sizeBytes;
    } catch (thrown) {
      const error: TmaxError = toTmaxError(thrown, 'cache');
      if (signal.aborted) throw error;
      done.failed += 1;
      onFailure({ ...label, path: address.path, errno: error.errno, message: messageOf(error) });
    } finally {
      running.delete(sha256);
    }
  };
  const queue = wanted.entries();
  const bringAll = async (): Promise<void> => {
    for (const [sha256, blob] of queue) {
      await bringOne(sha256, blob);
      // Thousands that are there already must not keep the kernel waiting.
      await nextTurn();
    }
  };
  const timer = setInterval(() => onProgress(progress()), PROGRESS_INTERVAL_MS);
  try {
    await Promise.all(Array.from({ length: concurrency }, bringAll));
  } finally {
    clearInterval(timer);
  }
  onProgress(progress());
  return progress();
}
