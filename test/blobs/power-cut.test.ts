/**
 * The power may go at any moment: what a cache asks of the disk is recorded, and after every single call each state is built
 * that the disk may be left in. A cache that starts on it serves what is right, or has nothing; and gets all of it again.
 */

import { createHash } from 'node:crypto';
import { fstatSync, mkdirSync, readSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import test from 'ava';
import { pino } from 'pino';
import { BlobCache } from '../../src/blobs/blob-cache.js';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { TmaxError } from '../../src/errors.js';
import type { BlobAddress, Source } from '../../src/sources/source.js';
import { verifyImage } from '../../src/verify/verify.js';
import { FolderSource } from '../support/folder-source.js';
import { supportProgram } from '../support/paths.js';
import { PowerCut } from '../support/power-cut.js';
import { provingAfterwards } from '../support/proving-afterwards.js';
import { anySeed, Random } from '../support/random.js';
import { sha256Of, tinyImage } from '../support/sif-writer.js';
import { memoryDisk } from '../support/small-disk.js';
import { type DiskOperation, recordOperations } from '../support/system-calls.js';

const IMAGES = 4;
const PAYLOAD_BYTES = 60_000;
/** Every so many states it is not only looked at what is there, but all is fetched again too. */
const STATES_PER_REFETCH = 6;

function makePool(pool: string): BlobAddress[] {
  mkdirSync(pool);
  return Array.from({ length: IMAGES }, (_, index) => {
    const content = tinyImage(index, PAYLOAD_BYTES);
    const path = `${index}.sif`;
    writeFileSync(join(pool, path), content);
    return { repository: 'o/p', commit: 'c'.repeat(40), path, sha256: sha256Of(content), sizeBytes: content.length };
  });
}

function openCache(store: BlobStore, sources: readonly Source[]): Promise<BlobCache> {
  return BlobCache.open({
    store,
    limits: { limitBytes: 2 ** 30, reserveFreeBytes: 0, leasePatienceMs: 1000 },
    sources,
    prover: provingAfterwards({ verify: verifyImage }),
    verifierVersion: 1,
    level: 'structure',
    openTimeoutMs: 60_000,
    maxFetches: IMAGES,
    architecture: { served: 'any', host: 'amd64' },
    log: pino({ level: 'silent' }),
  });
}

/** Digest of what an open gets, or the errno that it ends in. */
async function served(cache: BlobCache, address: BlobAddress): Promise<string> {
  try {
    const lease = await cache.open(address, { variant: 'v', task: 't' }, new AbortController().signal);
    const content = Buffer.alloc(fstatSync(lease.descriptor).size);
    readSync(lease.descriptor, content, 0, content.length, 0);
    lease.release();
    return createHash('sha256').update(content).digest('hex');
  } catch (error) {
    if (error instanceof TmaxError) return error.errno;
    throw error;
  }
}

function noteRot(rotten: Set<string>, operation: DiskOperation): void {
  if (operation.kind === 'write' && operation.path.includes('/blobs/')) rotten.add(basename(operation.path));
  if (operation.kind !== 'sync' || !operation.path.includes('/proofs/')) return;
  for (const sha256 of rotten) if (sha256.startsWith(basename(operation.path))) rotten.delete(sha256);
}

test('whenever the power goes, a blob is there whole and proven, or not at all; and can be fetched again', async (t) => {
  const seed = anySeed();
  t.log(`seed ${seed}`);
  const random = new Random(seed);
  const folder = await memoryDisk(t);
  const [root, pool] = [join(folder, 'cache'), join(folder, 'pool')];
  const images = makePool(pool);
  const program = supportProgram('recorded-cache');
  const operations = await recordOperations(program, [root, pool, JSON.stringify(images)], root, folder);
  const kinds = new Set(operations.map(({ kind }) => kind));
  t.true(['create', 'write', 'sync', 'rename', 'remove', 'folder'].every((kind) => kinds.has(kind as 'sync')));

  const disk = new PowerCut(root);
  const seen = new Set<string>();
  /** Damaged by the disk, which nobody can know until it has been found, and that has been written down for good. */
  const rotten = new Set<string>();
  let found = 0;
  for (const [index, operation] of operations.entries()) {
    disk.perform(operation);
    noteRot(rotten, operation);
    for (const state of disk.states(random)) {
      if (seen.has(state.fingerprint)) continue;
      seen.add(state.fingerprint);
      state.write();
      const where = `after call ${index} (${operation.kind}), state ${seen.size}, seed ${seed}`;
      const isRefetched = seen.size % STATES_PER_REFETCH === 0;
      const source = new FolderSource(pool, { pieceBytes: () => PAYLOAD_BYTES });
      const cache = await openCache(await BlobStore.open(root), isRefetched ? [source] : []);
      for (const address of images) {
        const outcome = await served(cache, address);
        const isRight = outcome === address.sha256 || (outcome === 'EHOSTUNREACH' && !isRefetched);
        if (!isRight && !rotten.has(address.sha256)) t.fail(`${where}: ${address.path}: ${outcome}`);
        if (outcome === address.sha256) found += 1;
      }
      await cache.close();
    }
  }
  const pin = join(root, 'pins', images[IMAGES - 1]?.sha256 ?? '');
  t.true(
    disk.states(random).every(({ paths }) => paths.has(pin)),
    'a pin that was set stays',
  );
  t.log(`${operations.length} calls, ${seen.size} states, ${found} images were served`);
  t.true(seen.size > operations.length && found > seen.size);
});
