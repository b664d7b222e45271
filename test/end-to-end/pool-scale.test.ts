import { statSync } from 'node:fs';
import test from 'ava';
import type { Coverage } from '../../src/daemon/coverage.js';
import { MountedPool, POOL_NAME } from '../support/mounted-pool.js';
import { POOL_TASKS, poolImages, poolTaskMap } from '../support/pool-scale.js';

const tasks = poolTaskMap();
const files = poolImages(tasks);

test('a pool of the published shape is counted, listed and looked at without fetching a blob', async (t) => {
  const pool = await MountedPool.start(t, { files, tasks });

  const coverage = await pool.tmaxfs(['coverage', pool.mountpoint]);
  t.is(coverage.exitCode, 0);
  const words = coverage.stdout;
  t.regex(words, /^original +14,601 +14,601 +0 /m);
  t.regex(words, /^hardened_prefilter +13,565 +13,565 +0 /m);
  t.regex(words, /^solvable +7,015 +7,015 +0 +0 +6,968 /m);
  t.regex(words, /distinct blobs in all: 16,203 .*; directories: derived, images, images_b00, images_b01, images_b02/);

  const json = await pool.tmaxfs(['coverage', pool.mountpoint, '--json', '--variant', 'solvable']);
  const document = JSON.parse(json.stdout) as Coverage;
  t.is(document.repository, POOL_NAME);
  t.deepEqual(
    document.variants.map(({ variant, tasks, resolvable, blobs, readyBlobs }) => ({
      variant,
      tasks,
      resolvable,
      blobs,
      readyBlobs,
    })),
    [{ variant: 'solvable', tasks: POOL_TASKS.solvable, resolvable: POOL_TASKS.solvable, blobs: 6968, readyBlobs: 0 }],
  );

  for (const [variant, count] of Object.entries(POOL_TASKS)) {
    const listing = await pool.run('ls', [pool.path(variant)]);
    t.is(listing.stdout.split('\n').length, count, variant);
  }
  const plain = files.filter(({ path }) => !path.startsWith('derived/'));
  t.is((await pool.run('ls', [pool.path('pool')])).stdout.split('\n').length, plain.length);

  const sizes = new Map(files.map(({ path, sizeBytes }) => [path, sizeBytes]));
  const stats = await pool.run('find', [pool.path('solvable'), '-type', 'f', '-printf', '%f %s %i %n\n']);
  const inodes = new Map<string, string>();
  for (const line of stats.stdout.split('\n')) {
    const [name = '', size, inode = '', links] = line.split(' ');
    const path = tasks['solvable']?.[name.slice(0, -'.sif'.length)] ?? '';
    if (Number(size) !== sizes.get(path)) t.fail(`${name} shows ${size} bytes, its image has ${sizes.get(path)}`);
    if ((inodes.get(path) ?? inode) !== inode) t.fail(`${name} has another inode than a task of the same image`);
    if (Number(links) < 2) t.fail(`${name} is also in another view, and shows ${links} link`);
    inodes.set(path, inode);
  }
  t.is(inodes.size, 6968, 'tasks of one image have one inode, others have their own');

  t.deepEqual(
    pool.hub.requests.filter(({ url }) => url.includes('/resolve/') && !url.includes('task_to_blob.json')),
    [],
  );
  t.deepEqual(
    pool.hub.requests.filter(({ server }) => server === 'cdn'),
    [],
  );
  t.true(pool.hub.requests.all.length <= 21, `${pool.hub.requests.all.length} requests for the catalog`);
});

test('a second start needs no network', async (t) => {
  const first = await MountedPool.start(t, { files, tasks });
  await first.tmaxfs(['unmount', first.mountpoint]);
  await first.hub.close();
  await first.mount();
  t.is(statSync(first.cacheDirectory).isDirectory(), true);
  const listing = await first.run('ls', [first.path('solvable')]);
  t.is(listing.stdout.split('\n').length, POOL_TASKS.solvable);
});
