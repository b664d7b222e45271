/** `tmaxfs cache` beside a running daemon, and after its end. */

import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import type { CacheCleaning } from '../../src/daemon/cache-cleaning.js';
import type { CacheListing, CacheUse } from '../../src/daemon/cache-listing.js';
import { MountedPool } from '../support/mounted-pool.js';
import { seeingOnly } from '../support/seen-mounts.js';
import { smallPool } from '../support/small-pool.js';

const MIB = 2 ** 20;

async function asked<Document>(pool: MountedPool, ...words: string[]): Promise<Document> {
  const { exitCode, stdout, stderr } = await pool.tmaxfs([
    'cache',
    ...words,
    '--cache-dir',
    pool.cacheDirectory,
    '--json',
  ]);
  if (exitCode !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Document;
}

test.serial('ls names images, du the limit of the daemon, gc takes only what nobody uses', async (t) => {
  const pool = await MountedPool.start(t, { ...smallPool(2, MIB), args: ['--cache-size', '100M'] });
  const holder = pool.spawn(['sh', '-c', 'exec 3<"$0"; echo open; read line', pool.path('v/t0.sif')]);
  await new Promise((resolve) => holder.stdout.once('data', resolve));
  await pool.tmaxfs(['pin', pool.mountpoint, 'v/t0.sif']);
  const [blob] = (await asked<CacheListing>(pool, 'ls')).blobs;
  t.like(blob, { level: 'structure', pinned: true, open: true, names: ['v/t0'], path: 'images/0.sif' });
  const shown = await pool.tmaxfs(['cache', 'ls', '--cache-dir', pool.cacheDirectory]);
  t.regex(
    shown.stdout,
    /^[0-9a-f]{64} {2}1\.\d MiB {2}\d{4}-\d\d-\d\d \d\d:\d\dZ {2}structure {5}yes {3}yes {2}v\/t0$/m,
  );

  const { pid } = await pool.status();
  const use = await asked<CacheUse>(pool, 'du');
  t.deepEqual(use.daemons, [{ mountpoint: pool.mountpoint, pid, limitBytes: 100 * MIB, reservedBytes: 0 }]);
  t.like(use.blobs, { files: 1, open: { files: 1 } });
  t.regex(
    (await pool.tmaxfs(['cache', 'du', '--cache-dir', pool.cacheDirectory])).stdout,
    /^limit 100 MiB \(.*tmax, pid \d+\)$/m,
  );

  // So little at a time that it is not done before this test is.
  pool.hub.fault({
    server: 'cdn',
    path: 'images/1.sif',
    fault: { kind: 'stall', afterBytes: 10_000 },
    requests: 'every',
  });
  const fetching = pool.spawn(['cat', pool.path('v/t1.sif')]);
  await pool.hub.requests.waitFor(({ file, bytesSent }) => file === 'images/1.sif' && bytesSent === 10_000);
  const left = join(pool.cacheDirectory, 'partial', 'f'.repeat(64));
  writeFileSync(left, 'x');
  t.like(await asked<CacheCleaning>(pool, 'gc'), { partials: { files: 1 }, runningFetches: 1, unlisted: null });
  t.false(existsSync(left));
  t.true(existsSync(join(pool.cacheDirectory, 'partial', pool.options.files[1]?.sha256 ?? '')));
  fetching.kill('SIGKILL');
  await fetching;
  holder.stdin.end('\n');
  await holder;

  await pool.tmaxfs(['unmount', pool.mountpoint]);
  t.deepEqual((await asked<CacheUse>(pool, 'du')).daemons, []);
  t.like(await asked<CacheCleaning>(pool, 'gc', '--unlisted'), {
    partials: { files: 1 },
    runningFetches: 0,
    unlisted: { files: 0 },
  });
  t.is((await asked<CacheListing>(pool, 'ls')).blobs.length, 1);
});

test.serial('where there is no cache it says so', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  for (const command of ['ls', 'du', 'gc']) {
    const { exitCode, stderr } = await pool.tmaxfs(['cache', command, '--cache-dir', join(pool.folder, 'none')]);
    t.is(exitCode, 1);
    t.regex(stderr, /^tmaxfs: there is no cache at .*none; name the one that is meant with --cache-dir$/);
  }
});

test.serial('without --cache-dir and a cache of one’s own, that of the one running daemon is meant', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1, MIB));
  const other = await MountedPool.start(t, smallPool(1, MIB));
  await pool.run('cat', [pool.path('v/t0.sif')]);
  const among = async (pools: readonly MountedPool[], ...words: string[]) => {
    const command = [process.execPath, ...pool.executable, ...words];
    const mountpoints = pools.map(({ mountpoint }) => mountpoint);
    return await pool.spawn([...seeingOnly(mountpoints), ...command]);
  };
  for (const [words, answer] of [
    [['cache', 'ls'], / v\/t0$/m],
    [['verify', '--repo', 'test-org/test-pool', '--jsonl', '-'], /"rc":0/],
  ] as const) {
    const { exitCode, stdout, stderr } = await among([pool], ...words);
    t.is(exitCode, 0, stderr);
    t.regex(stderr, new RegExp(`the daemon that is running has its own at ${pool.cacheDirectory}$`, 'm'));
    t.regex(stdout, answer);
  }
  const several = await among([pool, other], 'cache', 'du');
  t.is(several.exitCode, 2);
  t.regex(several.stderr, /name one with --cache-dir: /);
  for (const { cacheDirectory } of [pool, other]) t.true(several.stderr.includes(cacheDirectory));
  const none = await among([], 'cache', 'gc');
  t.is(none.exitCode, 1);
  t.regex(none.stderr, /^tmaxfs: there is no cache at /);
});
