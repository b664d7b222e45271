/** The real cache on a real directory never disagrees with a model of a hundred lines, whatever is done to it. */

import { createHash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import fc from 'fast-check';
import { BLOCK_BYTES, bendTime, cacheCommands, type PoolOfImages, RealCache } from '../support/cache-commands.js';
import { CacheModel } from '../support/cache-model.js';
import { memoryDisk } from '../support/small-disk.js';

/** In blocks. */
const SIZES = [1, 2, 3, 4, 2, 6];
const LIMITS = fc.integer({ min: 4, max: 14 });
const RUNS = 100;

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

test('opens, closes, prefetches, evictions, pins, limits, restarts and kills: the cache is what its model is', async (t) => {
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
    { numRuns: RUNS },
  );
  t.log(`${counter} commands in ${run} runs`);
  t.true(counter > RUNS);
});
