/**
 * Where a daemon is measured: around the opens of the blobs, the downloads of each source, and the proofs. Each of them is
 * wrapped in one of its own kind, so that the rooms below know nothing of being watched.
 */

import type { BlobCache } from '../../blobs/blob-cache.js';
import type { Lease } from '../../blobs/leases.js';
import type { FollowingProver } from '../../blobs/stored-blob-check.js';
import { toTmaxError } from '../../errors.js';
import { AbsentBlob } from '../../sources/failure.js';
import type { Source } from '../../sources/source.js';
import type { Verdict } from '../../verify/verdict.js';
import { CountTally, HistogramTally, RecentValues } from './tallies.js';
import { TransferRates } from './transfer-rates.js';

/** Seconds. A hit takes a fraction of a millisecond, a fetch seconds, and the patience of an open ends after minutes. */
const OPEN_BOUNDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
];
/** Seconds: a fetch goes on for two hours at most. */
const FETCH_BOUNDS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200];
const VERIFY_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];
const MIB = 2 ** 20;
/** Bytes: the images of a large pool have from 50 MB to 3.5 GB. */
const SIZE_BOUNDS = [1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096].map((mebibytes) => mebibytes * MIB);

/** How long opens took that were answered with a file, milliseconds. */
export interface Latencies {
  /** Of all, of those that were answered at once, and of those that waited for a fetch. */
  readonly all: RecentValues;
  readonly hits: RecentValues;
  readonly waited: RecentValues;
}

export class Measurements {
  /** Seconds, by `outcome` and `errno`. */
  readonly opens = new HistogramTally(OPEN_BOUNDS);
  readonly latencies: Latencies = { all: new RecentValues(), hits: new RecentValues(), waited: new RecentValues() };
  /** Seconds, by `source` and `outcome`. */
  readonly fetchSeconds = new HistogramTally(FETCH_BOUNDS);
  /** Bytes that came in fetches that succeeded, by `source`. */
  readonly fetchBytes = new HistogramTally(SIZE_BOUNDS);
  /** Bytes that have come, whatever became of them, by `source`. */
  readonly receivedBytes = new CountTally();
  /** Requests that failed and were followed by another, by `source`. */
  readonly retries = new CountTally();
  /** Seconds, by `level` and `outcome`. */
  readonly verifications = new HistogramTally(VERIFY_BOUNDS);
  readonly rates = new TransferRates();

  constructor() {
    for (const outcome of ['hit', 'fetched', 'interrupted']) this.opens.prepare({ outcome, errno: '' });
  }
}

/** What a mount asks of the cache. */
type MountedBlobs = Pick<BlobCache, 'open' | 'state' | 'isPinned'>;

/** The same cache, its opens timed. */
export function measuredOpens(
  blobs: MountedBlobs,
  { opens, latencies }: Pick<Measurements, 'opens' | 'latencies'>,
): MountedBlobs {
  const answered = (outcome: 'hit' | 'fetched', startedAt: number): void => {
    const milliseconds = performance.now() - startedAt;
    opens.observe({ outcome, errno: '' }, milliseconds / 1000);
    latencies.all.add(milliseconds);
    (outcome === 'hit' ? latencies.hits : latencies.waited).add(milliseconds);
  };
  const refused = (thrown: unknown, startedAt: number): void => {
    const { errno } = toTmaxError(thrown, 'cache');
    const labels = errno === 'EINTR' ? { outcome: 'interrupted', errno: '' } : { outcome: 'failed', errno };
    opens.observe(labels, (performance.now() - startedAt) / 1000);
  };
  return {
    state: (sha256) => blobs.state(sha256),
    isPinned: (sha256) => blobs.isPinned(sha256),
    open: (address, label, signal): Lease | Promise<Lease> => {
      const startedAt = performance.now();
      let opened: Lease | Promise<Lease>;
      try {
        opened = blobs.open(address, label, signal);
      } catch (thrown) {
        refused(thrown, startedAt);
        throw thrown;
      }
      if (!(opened instanceof Promise)) {
        answered('hit', startedAt);
        return opened;
      }
      return opened.then(
        (lease) => {
          answered('fetched', startedAt);
          return lease;
        },
        (thrown: unknown) => {
          refused(thrown, startedAt);
          throw thrown;
        },
      );
    },
  };
}

/** The same source, its downloads timed and weighed. */
export function measuredSource(source: Source, measurements: Measurements): Source {
  const { fetchSeconds, fetchBytes, receivedBytes, retries, rates } = measurements;
  const { name } = source;
  for (const outcome of ['fetched', 'failed']) fetchSeconds.prepare({ source: name, outcome });
  fetchBytes.prepare({ source: name });
  for (const tally of [receivedBytes, retries]) tally.add({ source: name }, 0);
  return {
    name,
    health: source.health,
    perseveres: source.perseveres ?? false,
    close: () => source.close(),
    download: async (blob, partialPath, options) => {
      const startedAt = performance.now();
      const transfer = rates.begin(blob.sha256);
      const ended = (outcome: string): void =>
        fetchSeconds.observe({ source: name, outcome }, (performance.now() - startedAt) / 1000);
      try {
        const download = await source.download(blob, partialPath, {
          ...options,
          onProgress: (bytes) => {
            receivedBytes.add({ source: name }, transfer.progress(bytes));
            options.onProgress?.(bytes);
          },
          onRetry: (reason) => {
            retries.add({ source: name });
            options.onRetry?.(reason);
          },
        });
        const broughtBytes = download.sizeBytes - download.resumedBytes;
        // What had come before the first progress was told.
        receivedBytes.add({ source: name }, Math.max(0, broughtBytes - transfer.receivedBytes));
        fetchBytes.observe({ source: name }, broughtBytes);
        ended('fetched');
        return download;
      } catch (thrown) {
        const isCalledOff = toTmaxError(thrown, name).errno === 'EINTR';
        ended(thrown instanceof AbsentBlob ? 'absent' : isCalledOff ? 'interrupted' : 'failed');
        throw thrown;
      } finally {
        transfer.end();
      }
    },
  };
}

/**
 * The same prover, its proofs timed, the wait for a free thread included. Of a proof that follows a fetch, what is left to
 * do after the last byte: the time that it costs whoever waits.
 */
export function measuredProver(
  prover: FollowingProver,
  { verifications }: Pick<Measurements, 'verifications'>,
): FollowingProver {
  const timed = async (level: string, prove: () => Promise<Verdict>): Promise<Verdict> => {
    const startedAt = performance.now();
    const ended = (outcome: string): void =>
      verifications.observe({ level, outcome }, (performance.now() - startedAt) / 1000);
    try {
      const verdict = await prove();
      ended(verdict.outcome);
      return verdict;
    } catch (thrown) {
      ended(toTmaxError(thrown, 'verify').errno === 'EINTR' ? 'interrupted' : 'failed');
      throw thrown;
    }
  };
  return {
    verify: (path, expectation, level, options) => timed(level, () => prover.verify(path, expectation, level, options)),
    follow: (path, expectation, level, options) => {
      const proof = prover.follow(path, expectation, level, options);
      return {
        written: (bytes) => proof.written(bytes),
        tail: (bytes) => proof.tail(bytes),
        conclude: () => timed(level, () => proof.conclude()),
        abandon: () => proof.abandon(),
      };
    },
  };
}
