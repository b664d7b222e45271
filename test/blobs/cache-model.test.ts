/** The real cache on a real directory never disagrees with a model of a hundred lines, whatever is done to it. */

import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { cacheCommands } from '../support/cache-commands.js';
import { CacheModel } from '../support/cache-model.js';
import { BLOCK_BYTES, bendTime, type PoolOfImages, RealCache } from '../support/real-cache.js';
import { SharedModel, sharedCommands } from '../support/shared-commands.js';
import { memoryDisk } from '../support/small-disk.js';

/** In blocks. */
const SIZES = [1, 2, 3, 4, 2, 6];
const LIMITS = fc.integer({ min: 4, max: 14 });
/** Sequences of each kind; many more by TMAXFS_MODEL_RUNS. */
const RUNS = Number(process.env['TMAXFS_MODEL_RUNS'] ?? 5);

function makePool(folder: string): PoolOfImages {
  mkdirSync(folder);
  const images = SIZES.map((blocks, index) => {
    const content = Buffer.alloc(blocks * BLOCK_BYTES, `image ${index}. `);
    const path = `${index}.sif`;
    writeFileSync(join(folder, path), content);
    const sha256 = createHash('sha256').update(content).digest('hex');
    return { repository: 'o/p', commit: 'c'.repeat(40), path, sha256, sizeBytes: content.length };
  });
  return { folder, images };
}

// One after the other: the first bends the time of this process.
test.serial(
  'opens, closes, prefetches, evictions, pins, limits, restarts and kills: the cache is what its model is',
  async (t) => {
    const disk = await memoryDisk(t);
    const clock = bendTime(t);
    const pool = makePool(join(disk, 'pool'));
    const images = pool.images.map(({ sizeBytes }, index) => ({ index, sizeBytes }));
    let run = 0;
    let counter = 0;
    await fc.assert(
      fc.asyncProperty(LIMITS, cacheCommands(clock, images.length, LIMITS), async (limitBlocks, commands) => {
        run += 1;
        const limitBytes = limitBlocks * BLOCK_BYTES;
        const real = new RealCache(join(disk, `cache-${run}`), pool);
        await real.start(limitBytes);
        try {
          await fc.asyncModelRun(() => ({ model: new CacheModel(images, limitBytes), real }), commands);
          counter += [...commands].length;
        } finally {
          await real.end();
        }
      }),
      { numRuns: RUNS, includeErrorInReport: true },
    );
    t.log(`${counter} commands in ${run} runs`);
    t.true(counter > 0);
  },
);

test.serial(
  'two caches on one directory: what either holds stays, what is there is fetched by neither, all bytes are right',
  async (t) => {
    const disk = await memoryDisk(t);
    const pool = makePool(join(disk, 'pool'));
    let run = 0;
    let counter = 0;
    await fc.assert(
      fc.asyncProperty(fc.tuple(LIMITS, LIMITS), sharedCommands(pool.images.length), async (blocks, commands) => {
        run += 1;
        const limits = blocks.map((limit) => limit * BLOCK_BYTES);
        const root = join(disk, `cache-${run}`);
        const caches = [new RealCache(root, pool), new RealCache(root, pool)] as const;
        for (const [index, cache] of caches.entries()) await cache.start(limits[index] ?? 0);
        try {
          await fc.asyncModelRun(() => ({ model: new SharedModel(limits), real: caches }), commands);
          counter += [...commands].length;
        } finally {
          for (const cache of caches) await cache.end();
        }
      }),
      { numRuns: RUNS, includeErrorInReport: true },
    );
    t.log(`${counter} commands in ${run} runs`);
    t.true(counter > 0);
  },
);
