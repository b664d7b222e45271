/**
 * One blob's way from absent to ready: room, turn, lock, bytes, proof, publication. In that order, once, for however many wait.
 *
 * The exclusive lock on the partial file makes it one fetch per blob across processes too, and the turn (fetch-turns.ts) across
 * nodes: who does not get it comes back later, to see whether the other has published, or has died and left its lock.
 */

import { rm } from 'node:fs/promises';
import { diskError } from '../disk-error.js';
import { messageOf, type TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import { type DownloadEnvironment, downloadProven } from './blob-download.js';
import type { Capacity } from './capacity.js';
import { type BroughtElsewhere, inTurn, type TurnEnvironment, type TurnProgress } from './fetch-in-turn.js';
import { isFull, withRelief } from './full-disk.js';
import type { LockedPartial } from './partial-files.js';
import type { ProvenBlobs } from './proven-blobs.js';
import { interrupted, refuse } from './refusal.js';
import { type CheckEnvironment, checkStored, type FollowingProver } from './stored-blob-check.js';

/** What a proof takes on disk, and less than which no disk has left that is not full. */
const BLOCK_BYTES = 4096;
const FOUND_ON_DISK = { source: 'cache', downloadedBytes: 0 } as const;

export interface FetchEnvironment extends CheckEnvironment, DownloadEnvironment, TurnEnvironment {
  readonly prover: FollowingProver;
  readonly capacity: Capacity;
  readonly proven: ProvenBlobs;
  /** Whether files of this blob are open through this very daemon, so that it can't be replaced. */
  readonly isHeld: (sha256: string) => boolean;
}

export type FetchPhase = 'queued' | 'fetching' | 'verifying' | 'publishing';

export interface FetchProgress extends TurnProgress {
  phase: FetchPhase;
  receivedBytes: number;
  /** Requests that failed and were followed by another, and what was wrong with the last of them. */
  faults: number;
  lastFault: string | undefined;
}

export interface FetchResult {
  /** Where the bytes came from; "cache" where they had been on disk all along, or another process brought them. */
  readonly source: string;
  readonly downloadedBytes: number;
}

/**
 * Makes the blob ready on disk, unless another is about to. `progress` is kept current as it goes; blobs in
 * `keep` are not evicted for it.
 * Errors: EBADMSG refused (and quarantined); ENOSPC; EIO of the disk; those of `Source.download`; EINTR aborted.
 */
export async function fetchBlob(
  environment: FetchEnvironment,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
  keep: ReadonlySet<string> = new Set(),
): Promise<FetchResult | BroughtElsewhere> {
  const { capacity } = environment;
  const { sha256, sizeBytes } = address;
  const prove = () => proveStored(environment, address, progress, signal);
  if (await withRelief(environment, address, keep, () => BLOCK_BYTES, prove)) return FOUND_ON_DISK;
  progress.phase = 'queued';
  try {
    await capacity.reserve(sha256, sizeBytes, signal, keep);
  } catch (error) {
    throw signal.aborted ? interrupted(address) : error;
  }
  let leftBytes = 0;
  const attempt = () =>
    fetchLocked(environment, address, progress, signal, (bytes) => {
      leftBytes = bytes;
      capacity.written(sha256, bytes);
    });
  let failure: unknown;
  try {
    return await inTurn(environment, address, progress, signal, () =>
      withRelief(environment, address, keep, () => Math.max(0, sizeBytes - leftBytes), attempt),
    );
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    capacity.abandon(sha256, leftBytes);
    // What is of no use yet is the first to go from a disk that has too little left for others.
    if (isFull(failure)) await shrinkOrWarn(environment);
  }
}

async function shrinkOrWarn({ capacity, log }: FetchEnvironment): Promise<void> {
  try {
    await capacity.shrink(BLOCK_BYTES);
  } catch (error) {
    log.warn({ reason: messageOf(error) }, 'no room could be made on the full disk of the cache');
  }
}

/**
 * One try under the partial file's lock; undefined where another process holds that. `onLeft` is told at the end what is on
 * disk that is no blob yet.
 */
async function fetchLocked(
  environment: FetchEnvironment,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
  onLeft: (bytes: number) => void,
): Promise<FetchResult | undefined> {
  const { store } = environment;
  const partial = await store.partials.lock(address.sha256);
  if (partial === undefined) return undefined;
  let result: FetchResult | undefined;
  try {
    // Somebody may have published it between the look at the disk and the lock.
    if (isProven(environment, address)) {
      await rm(partial.path, { force: true });
      return FOUND_ON_DISK;
    }
    result = await fetchInto(environment, partial, address, progress, signal);
    return result;
  } catch (thrown) {
    const error = diskError(thrown, `the fetch of ${address.path} failed`);
    // What a failing disk shows of a file may come from memory alone. A source that fails says nothing against it.
    if (isOfTheDisk(error)) await store.partials.discard(partial);
    // Whatever it says of this has been said.
    if (isFull(error)) await store.partials.sync(partial).catch(() => undefined);
    throw error;
  } finally {
    onLeft(await store.partials.release(partial));
    // Not before: it must not be open for writing.
    if (result !== undefined) await seal(environment, address);
  }
}

/** Whether it is the cache's own disk that could not be written, or read to prove what is on it. */
function isOfTheDisk({ errno, source }: TmaxError): boolean {
  return errno === 'EIO' && (source === 'cache' || source === 'verify');
}

/** A blob is proven and ready whether or not the kernel watches over it. Never rejects. */
async function seal({ store, log }: FetchEnvironment, { sha256, path }: BlobAddress): Promise<void> {
  try {
    await store.seal(sha256);
  } catch (error) {
    log.warn({ blob: sha256, path, reason: messageOf(error) }, 'the kernel could not be told to watch over a blob');
  }
}

/**
 * True where the blob is on disk and proven, if need be only now. A stored blob that fails is removed, to be fetched anew;
 * while files of it are open that must wait, since the kernel shows all opens of an inode the one same file.
 */
async function proveStored(
  environment: FetchEnvironment,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
): Promise<boolean> {
  const { store, capacity, proven, quarantine, log, isHeld } = environment;
  const { sha256, path } = address;
  if (isProven(environment, address)) return true;
  if (!store.isThere(sha256)) return false;
  progress.phase = 'verifying';
  const check = await checkStored(environment, address, signal);
  if (check.kind === 'sound') {
    await quarantine.remove(sha256);
    return true;
  }
  // What is to be fetched waits for room next.
  progress.phase = 'queued';
  if (check.kind === 'absent') return false;
  const { finding, level } = check;
  const words = `a blob in the cache is no longer what it was proven to be: ${finding.message}`;
  if (isHeld(sha256)) {
    throw await refuse(environment, address, { cause: 'disk', level, finding, source: 'cache' });
  }
  log.warn({ blob: sha256, path, ...finding }, `${words}; it is removed and fetched anew`);
  // Another daemon may hold it open: it keeps what it has, and this one begins anew.
  if (!(await store.removeDamaged(sha256))) await store.retire(sha256);
  proven.forget(sha256);
  capacity.forget(sha256);
  return false;
}

function isProven({ store, proven }: FetchEnvironment, { sha256, sizeBytes }: BlobAddress): boolean {
  const stored = store.openBlob(sha256);
  if (stored === undefined) return false;
  store.closeBlob(stored);
  return stored.sizeBytes === sizeBytes && proven.proofOf({ sha256, ...stored }) !== undefined;
}

async function fetchInto(
  environment: FetchEnvironment,
  partial: LockedPartial,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
): Promise<FetchResult | undefined> {
  const { store, capacity, quarantine, level, verifierVersion, log } = environment;
  const { sha256, sizeBytes, path } = address;
  progress.phase = 'fetching';
  const { source, download, proof } = await downloadProven(environment, partial, address, {
    signal,
    onSource: (name) => {
      progress.source = name;
    },
    onProgress: (receivedBytes) => {
      progress.receivedBytes = receivedBytes;
      capacity.written(sha256, receivedBytes);
    },
    onRetry: (reason) => {
      progress.faults += 1;
      progress.lastFault = reason;
    },
  });
  progress.phase = 'verifying';
  const verdict = await proof.conclude();
  if (verdict.outcome !== 'valid') {
    await partial.handle.truncate(0);
    // The digest agreed, so this is what the repository publishes: only another commit can mend it.
    const { finding } = verdict;
    throw await refuse(environment, address, { cause: 'image', level: verdict.level, finding, source: source.name });
  }
  progress.phase = 'publishing';
  const now = new Date().toISOString();
  await quarantine.remove(sha256);
  const record = {
    sha256,
    sizeBytes,
    level,
    verifierVersion,
    provenAt: now,
    checkedAt: now,
    architecture: verdict.architecture,
    source: source.name,
  };
  const { linked } = download;
  const isPublished = await (linked === undefined
    ? store.publish(sha256, partial, record)
    : store.adopt(sha256, partial, { ...record, ...linked }));
  if (!isPublished) return undefined;
  capacity.published(sha256, sizeBytes);
  // It is ready; nothing that happens from here on may say otherwise.
  await store.syncName(sha256).catch((error: unknown) => {
    log.warn({ blob: sha256, reason: messageOf(error) }, 'a power cut may take a blob away: its folder was not synced');
  });
  for (const warning of verdict.warnings) log.warn({ blob: sha256, path, ...warning }, `verify: ${warning.message}`);
  return { source: source.name, downloadedBytes: download.sizeBytes - download.resumedBytes };
}
