/**
 * A cache directory as it is after a month: the published 16,203 images on disk, as sparse files with proofs. What of its
 * cost grows with their number, and whether that keeps the main thread, which answers every lookup, from others.
 */

import { closeSync, ftruncateSync, mkdirSync, openSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { BlobStore } from '../src/blobs/blob-store.js';
import type { Proof } from '../src/blobs/proof.js';
import { TmaxError } from '../src/errors.js';
import type { BlobAddress } from '../src/sources/source.js';
import { setUp } from '../test/support/blob-cache.js';
import { poolImages } from '../test/support/pool-scale.js';
import { type Lifetime, temporaryFolder } from '../test/support/temporary.js';
import type { Bench, Contestant } from './bench.js';
import { BenchLifetime } from './support/lifetime.js';

const START_AT_MOST_SECONDS = 0.5;
const LEASE_AT_MOST_SECONDS = 50e-6;
const RESERVE_AT_MOST_SECONDS = 10e-3;
const TURN_AT_MOST_SECONDS = 5e-3;
const LEASES = 2000;
const RESERVATIONS = 50;
const EVICTED_BLOBS = 1000;
/** Room for a thousand images as they are published would be more than most disks have to give. */
const SHRUNK_BY = 64;
const MODIFIED_SECONDS = 1_700_000_000;
const label = { variant: 'v', task: 't' };
const never = new AbortController().signal;

interface FullCache {
  readonly root: string;
  readonly blobs: readonly BlobAddress[];
  readonly limitBytes: number;
}

/** Each blob used a second after the one before it. */
async function fullCache(lifetime: Lifetime): Promise<FullCache> {
  const root = join(temporaryFolder(lifetime), 'cache');
  const { layout } = await BlobStore.open(root);
  const blobs = poolImages().map(({ path, sha256, sizeBytes: publishedBytes }) => {
    const sizeBytes = Math.ceil(publishedBytes / SHRUNK_BY);
    return { repository: 'o/p', commit: 'c'.repeat(40), path, sha256, sizeBytes };
  });
  for (const [index, { sha256, sizeBytes }] of blobs.entries()) {
    for (const path of [layout.blob(sha256), layout.proof(sha256)]) mkdirSync(dirname(path), { recursive: true });
    const file = openSync(layout.blob(sha256), 'wx', 0o444);
    ftruncateSync(file, sizeBytes);
    closeSync(file);
    utimesSync(layout.blob(sha256), MODIFIED_SECONDS + index, MODIFIED_SECONDS);
    const at = new Date(MODIFIED_SECONDS * 1000).toISOString();
    const proof: Proof = {
      sha256,
      sizeBytes,
      modifiedSeconds: MODIFIED_SECONDS,
      level: 'structure',
      verifierVersion: 1,
      provenAt: at,
      checkedAt: at,
      architecture: 'amd64',
      source: 'hub',
    };
    writeFileSync(layout.proof(sha256), JSON.stringify(proof));
  }
  return { root, blobs, limitBytes: blobs.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0) };
}

/** A cache whose source has nothing: what is asked of it makes room, and then fails. */
async function openCache(lifetime: Lifetime, { root, limitBytes }: FullCache) {
  const limits = { limitBytes, reserveFreeBytes: 0, leasePatienceMs: 0 };
  const { cache, source } = await setUp(lifetime, { root, limits, openTimeoutMs: 600_000 });
  source.failure = new TmaxError('EHOSTUNREACH', 'nothing is to be had');
  const makeRoom = async (sizeBytes: number, seed: number): Promise<void> => {
    const sha256 = seed.toString(16).padStart(64, '0');
    const address = { repository: 'o/p', commit: 'c'.repeat(40), path: 'absent.sif', sha256, sizeBytes };
    await Promise.resolve(cache.open(address, label, never)).then(
      () => Promise.reject(new Error('an image came from nowhere')),
      (error: unknown) => {
        if (!(error instanceof TmaxError) || error.errno !== 'EHOSTUNREACH') throw error;
      },
    );
  };
  return { cache, makeRoom };
}

function bench(
  name: string,
  description: string,
  atMost: number,
  contestant: (lifetime: Lifetime, full: FullCache) => Promise<Contestant>,
): Bench {
  return {
    name,
    description,
    setup: async () => {
      const lifetime = new BenchLifetime();
      const full = await fullCache(lifetime);
      const only = await contestant(lifetime, full);
      return {
        subject: { blobs: full.blobs.length },
        contestants: [only],
        goals: [{ contestant: only.name, atMost }],
        teardown: () => lifetime.end(),
      };
    },
  };
}

const starting = bench(
  'cache-start',
  'finding 16,203 blobs again at a start',
  START_AT_MOST_SECONDS,
  async (lifetime, full) => ({
    name: 'start',
    run: async () => {
      const startedMs = performance.now();
      const { cache } = await openCache(lifetime, full);
      const seconds = (performance.now() - startedMs) / 1000;
      if (cache.statistics().use.idleBlobs !== full.blobs.length) throw new Error('not all blobs were found');
      await cache.close();
      return { seconds };
    },
  }),
);

const leasing = bench(
  'cache-lease',
  `leasing a ready blob of 16,203 in process, ${LEASES} different ones (seconds for one, median)`,
  LEASE_AT_MOST_SECONDS,
  async (lifetime, full) => {
    const { cache } = await openCache(lifetime, full);
    return {
      name: 'lease',
      run: async () => {
        const seconds = [];
        for (const address of full.blobs.slice(0, LEASES)) {
          const startedMs = performance.now();
          const lease = cache.open(address, label, never);
          seconds.push((performance.now() - startedMs) / 1000);
          if (lease instanceof Promise) throw new Error('a ready blob was waited for');
          lease.release();
        }
        return { seconds: seconds.sort((a, b) => a - b)[LEASES / 2] ?? Number.NaN };
      },
    };
  },
);

const reserving = bench(
  'cache-reserve',
  `making room for a fetch among 16,203 blobs, with one eviction (seconds for one, median of ${RESERVATIONS})`,
  RESERVE_AT_MOST_SECONDS,
  async (lifetime, full) => {
    const { makeRoom } = await openCache(lifetime, full);
    let seed = 0;
    return {
      name: 'reserve',
      run: async () => {
        const seconds = [];
        for (let index = 0; index < RESERVATIONS; index += 1) {
          seed += 1;
          const startedMs = performance.now();
          // What one eviction makes is enough for the next few.
          await makeRoom(full.blobs[0]?.sizeBytes ?? 1, seed);
          seconds.push((performance.now() - startedMs) / 1000);
        }
        return { seconds: seconds.sort((a, b) => a - b)[RESERVATIONS / 2] ?? Number.NaN };
      },
    };
  },
);

const evicting = bench(
  'cache-evict',
  `evicting ${EVICTED_BLOBS} of 16,203 blobs at one time (seconds of the longest turn of the main thread)`,
  TURN_AT_MOST_SECONDS,
  async (lifetime, full) => {
    const { cache, makeRoom } = await openCache(lifetime, full);
    let next = 0;
    return {
      name: 'evict',
      run: async () => {
        // What was evicted before has made room for as much.
        const sizeBytes = full.blobs.slice(0, next + EVICTED_BLOBS).reduce((sum, blob) => sum + blob.sizeBytes, 0);
        next += EVICTED_BLOBS;
        const before = cache.statistics().evicted;
        const turns = watchTurns();
        await makeRoom(sizeBytes, next);
        const seconds = turns.end();
        if (cache.statistics().evicted !== before + EVICTED_BLOBS) throw new Error('another number was evicted');
        return { seconds };
      },
    };
  },
);

/** The longest turn of the main thread until `end`. */
function watchTurns(): { end(): number } {
  let mostMs = 0;
  let lastMs = performance.now();
  let isOver = false;
  const look = () => {
    const nowMs = performance.now();
    mostMs = Math.max(mostMs, nowMs - lastMs);
    lastMs = nowMs;
    if (!isOver) setImmediate(look);
  };
  setImmediate(look);
  return {
    end: () => {
      isOver = true;
      look();
      return mostMs / 1000;
    },
  };
}

export const cacheDirectoryBenches: readonly Bench[] = [starting, leasing, reserving, evicting];
