/**
 * Many blobs brought to a destination by way of the cache: each is fetched and proven as for an open, written, and evicted again if it
 * was not on disk before. What is there already is passed over, so that a second run goes on where the first was ended.
 *
 * Several nodes may do this at one time: where the destination has turns, each blob is brought by one of them.
 */

import { setMaxListeners } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { Claim, Destination } from '../destinations/destination.js';
import { messageOf, TmaxError, toTmaxError } from '../errors.js';
import type { BlobCache } from './blob-cache.js';
import type { PrefetchOptions, PrefetchProgress, WantedBlob } from './prefetch.js';

/** `readyBlobs` and `readyBytes` are those at the destination. */
export interface SeedProgress extends PrefetchProgress {
  /** Of the ready ones, those that were not there before, by whoever else brought them. */
  readonly writtenBlobs: number;
}

export interface SeedOptions extends Omit<PrefetchOptions, 'onProgress'> {
  readonly onProgress: (progress: SeedProgress) => void;
}

export interface SeedParts {
  readonly cache: Pick<BlobCache, 'open' | 'isThere' | 'evict' | 'pathOf' | 'state'>;
  readonly destination: Destination;
}

const PROGRESS_INTERVAL_MS = 500;
/** How long a blob that another node is bringing is left to it, and how often it is looked whether it is there. */
const PATIENCE_MS = 600_000;
const LOOK_AGAIN_MS = 1000;

const ALONE: Claim = { kind: 'ours', release: async () => undefined };

/**
 * Resolves when every blob (by sha256) is there or has failed; a blob that can't be had ends nothing.
 * Errors: those of the destination, which would fail for all others too; EINTR aborted.
 */
export async function seed(
  { cache, destination }: SeedParts,
  wanted: ReadonlyMap<string, WantedBlob>,
  { concurrency, signal, onProgress, onFailure }: SeedOptions,
): Promise<SeedProgress> {
  const stop = new AbortController();
  const end = AbortSignal.any([signal, stop.signal]);
  setMaxListeners(0, end);
  const running = new Set<string>();
  const bytes = [...wanted.values()].reduce((sum, { address }) => sum + address.sizeBytes, 0);
  const done = { blobs: 0, bytes: 0, written: 0, failed: 0 };
  const progress = (): SeedProgress => ({
    blobs: wanted.size,
    readyBlobs: done.blobs,
    writtenBlobs: done.written,
    failedBlobs: done.failed,
    bytes,
    readyBytes: done.bytes + arrivedBytes(cache, running),
  });
  /** False: it is another node's, to be looked at again. */
  const bringOne = async (blob: WantedBlob, isPatient: boolean): Promise<boolean> => {
    const { address, label } = blob;
    const claim = await claimOn(destination, blob, end);
    if (claim.kind === 'taken' && isPatient) return false;
    running.add(address.sha256);
    try {
      if (claim.kind === 'full') throw noRoom(destination, blob);
      const isThere = claim.kind === 'there' || (await destination.has(address, end));
      if (!isThere && (await bring(cache, destination, blob, end))) done.written += 1;
      done.blobs += 1;
      done.bytes += address.sizeBytes;
    } catch (error) {
      if (!(error instanceof FailedFetch)) throw error;
      done.failed += 1;
      const { errno } = error.reason;
      onFailure({ ...label, path: address.path, errno, message: messageOf(error.reason) });
    } finally {
      running.delete(address.sha256);
      if (claim.kind === 'ours') await claim.release();
    }
    return true;
  };
  const queue = [...wanted.values()].map((blob) => ({ blob, takenSinceMs: undefined as number | undefined }));
  const bringAll = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      const now = performance.now();
      const isPatient = now - (next.takenSinceMs ?? now) < PATIENCE_MS;
      if (await bringOne(next.blob, isPatient)) continue;
      queue.push({ blob: next.blob, takenSinceMs: next.takenSinceMs ?? now });
      // All that is left may be in others' hands.
      if (queue.every(({ takenSinceMs }) => takenSinceMs !== undefined))
        await delay(LOOK_AGAIN_MS, undefined, { signal: end });
    }
  };
  const timer = setInterval(() => onProgress(progress()), PROGRESS_INTERVAL_MS);
  const bringing = Array.from({ length: concurrency }, bringAll);
  try {
    await Promise.all(bringing);
  } catch (error) {
    stop.abort();
    await Promise.allSettled(bringing);
    throw signal.aborted ? new TmaxError('EINTR', 'called off', { cause: error, source: 'cache' }) : error;
  } finally {
    clearInterval(timer);
  }
  onProgress(progress());
  return progress();
}

/** The blob could not be had: the next one may be. */
class FailedFetch extends Error {
  override readonly name = 'FailedFetch';
  readonly reason: TmaxError;

  constructor(reason: TmaxError) {
    super(reason.message);
    this.reason = reason;
  }
}

/** False where another node was quicker. Errors: FailedFetch; those of the destination; EINTR. */
async function bring(
  cache: SeedParts['cache'],
  destination: Destination,
  { address, label }: WantedBlob,
  signal: AbortSignal,
): Promise<boolean> {
  const { sha256 } = address;
  const wasHere = cache.isThere(sha256);
  let isDamaged = false;
  const lease = await fetched(async () => await cache.open(address, label, signal));
  try {
    return (await destination.put(address, cache.pathOf(sha256), { signal, mends: false })) === 'written';
  } catch (thrown) {
    const error = toTmaxError(thrown, destination.name);
    // It has changed on this disk since it was proven; that says nothing of the others.
    isDamaged = error.errno === 'EBADMSG';
    throw isDamaged ? new FailedFetch(error) : error;
  } finally {
    lease.release();
    if (!wasHere || isDamaged) await cache.evict(sha256);
  }
}

async function fetched<Result>(fetch: () => Promise<Result>): Promise<Result> {
  try {
    return await fetch();
  } catch (thrown) {
    const error = toTmaxError(thrown, 'cache');
    throw error.errno === 'EINTR' ? error : new FailedFetch(error);
  }
}

async function claimOn(destination: Destination, { address }: WantedBlob, signal: AbortSignal): Promise<Claim> {
  if (signal.aborted) throw new TmaxError('EINTR', 'called off', { source: 'cache' });
  return destination.claim === undefined ? ALONE : await destination.claim(address, signal);
}

function arrivedBytes(cache: SeedParts['cache'], running: ReadonlySet<string>): number {
  let bytes = 0;
  for (const sha256 of running) {
    const state = cache.state(sha256);
    if ('receivedBytes' in state) bytes += state.receivedBytes;
  }
  return bytes;
}

function noRoom({ name }: Destination, { address }: WantedBlob): TmaxError {
  const words = `has no room for ${address.path} (${address.sizeBytes} bytes) above what --publish-reserve keeps free`;
  return new TmaxError('ENOSPC', `the destination ${name} ${words}; what is there stays`, { source: name });
}
