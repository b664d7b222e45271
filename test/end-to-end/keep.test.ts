/** `tmaxfs pin`, `unpin` and `evict` on a real mount. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import { resultOf } from '../support/command.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

const MIB = 2 ** 20;

function cached(pool: MountedPool): boolean[] {
  return pool.options.files.map(({ sha256 }) =>
    existsSync(join(pool.cacheDirectory, 'blobs', sha256.slice(0, 2), sha256)),
  );
}

const read = (pool: MountedPool, name: string) => pool.run('cat', [pool.path(name)]);

test.serial('what is pinned outlasts others and the daemon, and is shown', async (t) => {
  const pool = await MountedPool.start(t, { ...smallPool(4, MIB), args: ['--cache-size', '3M'] });
  await read(pool, 'v/t0.sif');
  const pinned = await pool.tmaxfs(['pin', pool.mountpoint, pool.path('v/t0.sif'), 'v/t3']);
  t.is(pinned.exitCode, 0, pinned.stderr);
  t.regex(
    pinned.stdout,
    /^2 images pinned; in all 1 image of 1\.\d MiB and 1 that are not on disk yet are never evicted$/m,
  );
  t.regex(pinned.stdout, /^1 of them not on disk: .*"tmaxfs prefetch" brings them now$/m);
  await read(pool, 'v/t1.sif');
  await read(pool, 'v/t2.sif');
  t.deepEqual(cached(pool), [true, false, true, false]);
  await pool.tmaxfs(['unmount', pool.mountpoint]);
  await pool.mount();
  await read(pool, 'v/t3.sif');
  t.deepEqual(cached(pool), [true, false, false, true]);
  t.like((await pool.status()).cache.pinned, { blobs: 2, absentBlobs: 0 });
  t.regex(
    (await pool.tmaxfs(['status', pool.mountpoint])).stdout,
    / 2 ready, 0 of them held open, 2 pinned \(2\.\d MiB\), /,
  );
  const attribute = await pool.run('getfattr', ['--only-values', '-n', 'user.tmaxfs.pinned', pool.path('v/t0.sif')]);
  t.is(attribute.stdout, 'yes');
  const full = await read(pool, 'v/t1.sif');
  t.regex(full.stderr, /No space left on device/);
  const unpinned = await pool.tmaxfs(['unpin', pool.mountpoint, 'v']);
  t.is(unpinned.stdout, '2 images no longer pinned');
  t.is((await read(pool, 'v/t1.sif')).exitCode, 0);
});

test.serial('evict removes what nobody has, and names what stays; exit 1', async (t) => {
  const pool = await MountedPool.start(t, smallPool(4));
  for (const name of ['v/t0.sif', 'v/t1.sif', 'v/t2.sif']) await read(pool, name);
  await pool.tmaxfs(['pin', pool.mountpoint, 'v/t1.sif']);
  const holder = pool.spawn(['sh', '-c', 'exec 3<"$0"; echo open; read line', pool.path('v/t2.sif')]);
  await new Promise((resolve) => holder.stdout.once('data', resolve));
  const partly = await pool.tmaxfs(['evict', pool.mountpoint, pool.path('v'), 'nonsense']);
  t.is(partly.exitCode, 1);
  t.is(partly.stdout, '1 image removed from disk; 1 not there');
  t.regex(partly.stderr, /^failed: v\/t1\.sif: it is pinned; "tmaxfs unpin" it first$/m);
  t.regex(partly.stderr, /^failed: v\/t2\.sif: it is open through this mount; end what uses it$/m);
  t.regex(partly.stderr, /^failed: nonsense: there is no such image or folder in the mount$/m);
  t.deepEqual(cached(pool), [false, true, true, false]);
  holder.stdin.end('\n');
  await holder;
  await pool.tmaxfs(['unpin', pool.mountpoint, pool.mountpoint]);
  const all = await pool.tmaxfs(['evict', pool.mountpoint, pool.mountpoint]);
  t.is(all.exitCode, 0, all.stderr);
  t.deepEqual(cached(pool), [false, false, false, false]);
  t.is((await read(pool, 'v/t0.sif')).exitCode, 0, 'it is fetched anew');
});

test.serial('names may be relative to where one stands in the mount; a path to elsewhere is wrong usage', async (t) => {
  const pool = await MountedPool.start(t, smallPool(2));
  const words = [...pool.executable, 'pin', pool.mountpoint, 't1.sif', '../v/t0.sif'];
  const { exitCode, stdout } = await resultOf(execa(process.execPath, words, { cwd: pool.path('v'), reject: false }));
  t.is(exitCode, 0);
  t.regex(stdout, /^2 images pinned/);
  const elsewhere = await pool.tmaxfs(['pin', pool.mountpoint, '/etc/passwd']);
  t.is(elsewhere.exitCode, 2);
  t.is(elsewhere.stderr, `tmaxfs: /etc/passwd is not below ${pool.mountpoint}`);
});
