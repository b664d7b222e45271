/**
 * One blob's way from absent to ready: room, lock, bytes, proof, publication. In that order, once, for however many wait.
 *
 * The exclusive flock on the partial file makes it one fetch per blob across processes too: who does not get it looks
 * each `LOCK_POLL_MS` whether the other has published, or has died and left its lock.
 */

import { closeSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { messageOf, TmaxError, toTmaxError } from '../errors.js';
import type { BlobAddress, Download, Source } from '../sources/source.js';
import type { Finding, Verdict, VerifyLevel } from '../verify/verdict.js';
import type { BlobStore, LockedPartial } from './blob-store.js';
import type { Capacity } from './capacity.js';
import { covers } from './proof.js';
import type { Quarantine } from './quarantine.js';

/** How often the lock of another process's fetch is tried. */
const LOCK_POLL_MS = 250;
/** A source whose bytes have the wrong digest is asked this often in all: the first time may have been a broken transfer. */
const MAX_DIGEST_TRIES = 2;

export interface Prover {
  verify(
    path: string,
    expectation: { sizeBytes: number; sha256: string; computedSha256?: string },
    level: VerifyLevel,
    options: { signal: AbortSignal },
  ): Promise<Verdict>;
}

export interface FetchEnvironment {
  readonly store: BlobStore;
  readonly capacity: Capacity;
  readonly quarantine: Quarantine;
  /** In the order in which they are asked. */
  readonly sources: readonly Source[];
  readonly prover: Prover;
  readonly verifierVersion: number;
  readonly level: VerifyLevel;
  readonly log: Logger;
}

export type FetchPhase = 'queued' | 'fetching' | 'verifying' | 'publishing';

export interface FetchProgress {
  phase: FetchPhase;
  receivedBytes: number;
  source: string | undefined;
}

export interface FetchResult {
  /** Where the bytes came from; "cache" where they had been on disk all along, or another process brought them. */
  readonly source: string;
  readonly downloadedBytes: number;
}

/**
 * Makes the blob ready on disk. `progress` is kept current as it goes.
 * Errors: EBADMSG refused (and quarantined); ENOSPC; those of `Source.download`; EINTR aborted.
 */
export async function fetchBlob(
  environment: FetchEnvironment,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
): Promise<FetchResult> {
  const { store, capacity } = environment;
  for (;;) {
    if (await proveStored(environment, address, progress, signal)) return { source: 'cache', downloadedBytes: 0 };
    await capacity.reserve(address.sha256, address.sizeBytes);
    let partial: LockedPartial | undefined;
    try {
      partial = await store.lockPartial(address.sha256);
      if (partial !== undefined) return await fetchInto(environment, partial, address, progress, signal);
    } finally {
      const leftBytes = partial === undefined ? 0 : await leftIn(partial);
      await partial?.handle.close();
      capacity.abandon(address.sha256, leftBytes);
    }
    try {
      await delay(LOCK_POLL_MS, undefined, { signal });
    } catch {
      throw interrupted(address);
    }
  }
}

/** Bytes that a fetch leaves in its partial file; none once it has been published or removed. */
async function leftIn(partial: LockedPartial): Promise<number> {
  const stats = await partial.handle.stat();
  const isPublished = (stats.mode & 0o200) === 0;
  return stats.nlink === 0 || isPublished ? 0 : stats.blocks * 512;
}

/** True where the blob is on disk and proven, if need be only now; a stored blob that fails is removed. */
async function proveStored(
  environment: FetchEnvironment,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
): Promise<boolean> {
  const { store, capacity, prover, level, verifierVersion, log } = environment;
  const stored = store.openBlob(address.sha256);
  if (stored === undefined) return false;
  // The descriptor's shared lock keeps every process from evicting the file while it is read.
  let verdict: Verdict;
  try {
    const file = { sha256: address.sha256, ...stored };
    const proof = store.proof(address.sha256);
    if (proof !== undefined && covers(proof, file, level, verifierVersion) && stored.sizeBytes === address.sizeBytes)
      return true;
    progress.phase = 'verifying';
    verdict = await prover.verify(store.layout.blob(address.sha256), address, level, { signal });
    if (verdict.outcome === 'valid') {
      await store.writeProof({
        ...file,
        level,
        verifierVersion,
        provenAt: new Date().toISOString(),
        source: proof?.source ?? 'cache',
      });
      return true;
    }
  } finally {
    closeSync(stored.descriptor);
  }
  log.warn(
    { blob: address.sha256, path: address.path, ...verdict.finding },
    `a blob in the cache is no longer what it was proven to be: ${verdict.finding.message}; it is removed and fetched anew`,
  );
  await store.remove(address.sha256);
  capacity.forget(address.sha256);
  return false;
}

async function fetchInto(
  environment: FetchEnvironment,
  partial: LockedPartial,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
): Promise<FetchResult> {
  const { store, quarantine, prover, level, verifierVersion } = environment;
  const { source, download } = await downloadProven(environment, partial, address, progress, signal);
  progress.phase = 'verifying';
  const expectation = { ...address, computedSha256: download.sha256 };
  const verdict = await prover.verify(partial.path, expectation, level, { signal });
  if (verdict.outcome !== 'valid') {
    await discard(partial);
    // The digest agreed, so this is what the repository publishes: only another commit can mend it.
    throw await refuse(environment, address, source, 'image', verdict.finding, verdict.level);
  }
  progress.phase = 'publishing';
  await store.publish(address.sha256, partial, {
    sha256: address.sha256,
    sizeBytes: address.sizeBytes,
    level,
    verifierVersion,
    provenAt: new Date().toISOString(),
    source: source.name,
  });
  await quarantine.remove(address.sha256);
  for (const warning of verdict.warnings) {
    environment.log.warn({ blob: address.sha256, path: address.path, ...warning }, `verify: ${warning.message}`);
  }
  return { source: source.name, downloadedBytes: download.sizeBytes - download.resumedBytes };
}

/** Bytes of the right length and digest, from the first source that has them. */
async function downloadProven(
  environment: FetchEnvironment,
  partial: LockedPartial,
  address: BlobAddress,
  progress: FetchProgress,
  signal: AbortSignal,
): Promise<{ source: Source; download: Download }> {
  const { sources, capacity, log } = environment;
  let failure: TmaxError | undefined;
  for (const source of sources) {
    for (let attempt = 1; attempt <= MAX_DIGEST_TRIES; attempt += 1) {
      progress.phase = 'fetching';
      progress.source = source.name;
      const onProgress = (receivedBytes: number) => {
        progress.receivedBytes = receivedBytes;
        capacity.written(address.sha256, receivedBytes);
      };
      let download: Download;
      try {
        download = await source.download(address, partial.path, { signal, onProgress });
      } catch (error) {
        failure = worse(failure, await judgeFailure(environment, partial, address, source, error));
        break;
      }
      const finding = compare(download, address);
      if (finding === undefined) return { source, download };
      await discard(partial);
      progress.receivedBytes = 0;
      log.warn(
        { blob: address.sha256, path: address.path, source: source.name, attempt, ...finding },
        `fetch: ${finding.message}`,
      );
      if (attempt === MAX_DIGEST_TRIES) {
        failure = worse(failure, await refuse(environment, address, source, 'transfer', finding, finding.code));
      }
    }
  }
  if (failure !== undefined) throw failure;
  throw new TmaxError('EHOSTUNREACH', `${address.path} is not on this disk, and the daemon is offline`, {
    source: 'offline',
  });
}

/** What a source's failure means for the blob: wrong bytes are remembered, an abort ends everything, the rest is passed on. */
async function judgeFailure(
  environment: FetchEnvironment,
  partial: LockedPartial,
  address: BlobAddress,
  source: Source,
  thrown: unknown,
): Promise<TmaxError> {
  const error = toTmaxError(thrown, source.name);
  if (error.errno === 'EINTR') throw error;
  if (error.errno !== 'EBADMSG') return error;
  await discard(partial);
  return refuse(environment, address, source, 'transfer', { code: 'transfer', message: error.message }, 'size');
}

/** Of two sources' failures the one to report: wrong bytes say more than no answer. */
function worse(first: TmaxError | undefined, second: TmaxError): TmaxError {
  return first?.errno === 'EBADMSG' ? first : second;
}

function compare(download: Download, address: BlobAddress): Finding | undefined {
  if (download.sizeBytes !== address.sizeBytes) {
    return {
      code: 'size-mismatch',
      message: `${download.sizeBytes} bytes arrived where the listing says ${address.sizeBytes}`,
    };
  }
  if (download.sha256 !== address.sha256) {
    return {
      code: 'sha256-mismatch',
      message: `what arrived has the sha256 ${download.sha256}, the listing says ${address.sha256}`,
    };
  }
  return undefined;
}

async function discard(partial: LockedPartial): Promise<void> {
  await partial.handle.truncate(0);
}

/** Remembers the refusal and makes the error that every waiting open gets. */
async function refuse(
  environment: FetchEnvironment,
  address: BlobAddress,
  source: Source,
  cause: 'image' | 'transfer',
  finding: Finding,
  level: string,
): Promise<TmaxError> {
  const { quarantine, log } = environment;
  const { sha256, sizeBytes, repository, commit, path } = address;
  const record = {
    sha256,
    sizeBytes,
    repository,
    commit,
    path,
    cause,
    code: finding.code,
    reason: finding.message,
    level,
    source: source.name,
    refusedAt: new Date().toISOString(),
  };
  try {
    await quarantine.add(record);
  } catch (error) {
    log.error(
      { blob: sha256, reason: messageOf(error) },
      'the reason of a refused blob could not be written to the cache directory',
    );
  }
  return refusalError(record);
}

/** The error of an open of a refused blob, the same whether it was refused just now or before. */
export function refusalError(record: {
  path: string;
  commit: string;
  cause: 'image' | 'transfer';
  code: string;
  reason: string;
  source: string;
}): TmaxError {
  const remedy =
    record.cause === 'image'
      ? 'the published image is broken: tell its owner; it is not fetched again before the repository changes'
      : 'it is tried anew at the next open after half a minute; if it stays, look at the source, its caches and proxies';
  return new TmaxError(
    'EBADMSG',
    `${record.path} from ${record.source} refused (${record.code}): ${record.reason}; ${remedy}`,
    {
      source: record.source,
    },
  );
}

/** The error of whoever waited when it was stopped. */
export function interrupted(address: BlobAddress): TmaxError {
  return new TmaxError('EINTR', `waiting for ${address.path} was interrupted`, { source: 'cache', level: 'debug' });
}
