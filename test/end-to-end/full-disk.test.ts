/**
 * A disk of the cache, or a quota on it, that others fill up while images are fetched: real file systems, the real daemon.
 */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import type { LogLine } from '../support/daemon-log.js';
import { IMAGE_BYTES, PoolOnDisk, STALL_AFTER_BYTES } from '../support/pool-on-disk.js';
import { drain, ext4Disk, fill, quotaDisk } from '../support/small-disk.js';

const DISK_BYTES = 64 * 2 ** 20;

function reliefs({ pool }: PoolOnDisk): Promise<LogLine[]> {
  return pool.logged(({ msg }) => /filled up during a fetch/.test(String(msg)));
}

test.serial(
  'a disk that others fill up during a fetch is relieved of what nobody holds, and the fetch goes on',
  async (t) => {
    const disk = await ext4Disk(t, DISK_BYTES);
    const cache = await PoolOnDisk.start(t, disk, 4);
    const holder = await cache.hold(0);
    for (const task of [1, 2]) await cache.isServed(task);
    const { digest, words } = await cache.duringFetch(3, () => fill(disk));
    t.is(digest, cache.sha256(3), words);
    const cached = [0, 1, 2, 3].map((task) => cache.isCached(task));
    t.deepEqual(cached, [true, false, true, true], 'what was used longest ago went, and no more');
    t.is(await holder.digest(), cache.sha256(0));
    t.is((await cache.pool.status()).fetches.failed, 0);
    t.is((await reliefs(cache)).length, 1);
  },
);

test.serial(
  'with nothing to give up, that open alone fails, with the numbers; all else goes on, also after room was made',
  async (t) => {
    const disk = await ext4Disk(t, DISK_BYTES);
    const cache = await PoolOnDisk.start(t, disk, 3);
    const holders = [await cache.hold(0), await cache.hold(1)];
    const { words } = await cache.duringFetch(2, () => fill(disk));
    t.regex(words, /No space left on device/);
    const failure = await cache.lastFailure();
    const sizeBytes = cache.files[2]?.sizeBytes ?? 0;
    t.true(failure.includes(`${sizeBytes - STALL_AFTER_BYTES} of ${sizeBytes} bytes are missing`), failure);
    t.regex(failure, /^ENOSPC: .*free some room.*2 images held open/);
    t.deepEqual(readdirSync(join(cache.pool.cacheDirectory, 'partial')), [], 'a full disk keeps nothing of no use');
    // The others never notice.
    for (const [task, holder] of holders.entries()) t.is(await holder.digest(), cache.sha256(task));
    await cache.isServed(0);
    t.is((await cache.pool.run('ls', [cache.pool.path('v')])).stdout, 't0.sif\nt1.sif\nt2.sif');
    await drain(disk);
    await cache.isServed(2);
  },
);

test.serial('a quota that nothing tells of is a full disk: what nobody holds makes room', async (t) => {
  const cache = await PoolOnDisk.start(t, await quotaDisk(t, 4 * IMAGE_BYTES), 8);
  const holder = await cache.hold(0);
  for (let task = 1; task < 8; task += 1) await cache.isServed(task);
  t.is(await holder.digest(), cache.sha256(0));
  const evictions = await reliefs(cache);
  t.true(
    evictions.some(({ reason }) => /EDQUOT/.test(String(reason))),
    JSON.stringify(evictions),
  );
});

test.serial('a quota that is taken by open images fails what does not fit, and nothing else', async (t) => {
  const cache = await PoolOnDisk.start(t, await quotaDisk(t, 3 * IMAGE_BYTES), 3);
  const holders = [await cache.hold(0), await cache.hold(1)];
  t.regex((await cache.read(2)).words, /No space left on device/);
  t.regex(await cache.lastFailure(), /^ENOSPC: .*EDQUOT.*quota is full/);
  for (const [task, holder] of holders.entries()) t.is(await holder.digest(), cache.sha256(task));
  await holders[0]?.close();
  await cache.isServed(2);
});
