/** A mount whose images come out of directories: alone without a network, and beside the Hub. */

import { chmodSync, mkdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { flipBit } from '../support/bit-rot.js';
import { memoryFolder } from '../support/loop-disk.js';
import { MountedPool } from '../support/mounted-pool.js';
import { contentOf, smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

/** What `snapshot_download(local_dir=...)` leaves of the first images of a pool; the last one is damaged. */
function downloaded(
  t: Parameters<typeof temporaryFolder>[0],
  pool: Pick<MountedPool, 'options'>,
  count: number,
): string {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'images'));
  for (const file of pool.options.files.slice(0, count)) writeFileSync(join(folder, file.path), contentOf(file));
  flipBit(join(folder, `images/${count - 1}.sif`), 5000);
  return folder;
}

const read = (pool: MountedPool, name: string) => pool.run('sha256sum', [pool.path(name)]);

test.serial('without any network, images come out of a directory, proven like any other', async (t) => {
  const online = await MountedPool.start(t, smallPool(4));
  const folder = downloaded(t, online, 3);
  const hubCache = temporaryFolder(t);
  const [, , , last] = online.options.files;
  const repository = join(hubCache, 'datasets--test-org--test-pool');
  for (const name of ['blobs', 'snapshots/main/images']) mkdirSync(join(repository, name), { recursive: true });
  writeFileSync(join(repository, 'blobs', last?.sha256 ?? ''), contentOf(last));
  symlinkSync(`../../../blobs/${last?.sha256}`, join(repository, 'snapshots/main/images/3.sif'));
  await online.tmaxfs(['unmount', online.mountpoint]);
  await online.hub.close();
  const pool = await MountedPool.start(t, {
    ...online.options,
    cacheDirectory: online.cacheDirectory,
    args: ['--offline', '--source', `dir:${folder}`, '--source', `dir:${hubCache}`],
  });
  for (const [index, file] of online.options.files.entries()) {
    if (index === 2) continue;
    const { stdout, stderr } = await read(pool, `v/t${index}.sif`);
    t.true(stdout.startsWith(file.sha256), stderr);
  }
  t.regex((await read(pool, 'v/t2.sif')).stderr, /Bad message/);
  const status = await pool.status();
  t.deepEqual(
    status.sources.map(({ name }) => name),
    [`dir:${folder}`, `dir:${hubCache}`],
  );
  t.like(status.quarantine[0], { cause: 'transfer', code: 'sha256-mismatch', source: `dir:${folder}` });
  t.is(pool.hub.requests.all.length, 0);
  t.truthy(await pool.logged(({ source, task }) => source === `dir:${hubCache}` && task === 't3'));
});

test.serial('images that were made read-only beforehand take no room twice', async (t) => {
  const disk = await memoryFolder(t, 64 * 2 ** 20);
  const pool = smallPool(2);
  const folder = join(disk, 'images');
  mkdirSync(folder);
  for (const file of pool.files) writeFileSync(join(disk, file.path), contentOf(file), { mode: 0o444 });
  const args = ['--source', `dir:${disk}`, '--source', 'hub'];
  const mounted = await MountedPool.start(t, { ...pool, cacheDirectory: join(disk, 'cache'), args });
  for (const [index, { sha256, path }] of pool.files.entries()) {
    t.true((await read(mounted, `v/t${index}.sif`)).stdout.startsWith(sha256));
    const blob = join(mounted.cacheDirectory, 'blobs', sha256.slice(0, 2), sha256);
    t.is(statSync(blob).ino, statSync(join(disk, path)).ino);
  }
  t.is(mounted.hub.requests.filter(({ server }) => server === 'cdn').length, 0);
});

test.serial('an image that no directory has is unreachable offline, and the words name what was asked', async (t) => {
  const online = await MountedPool.start(t, smallPool(2));
  const folder = temporaryFolder(t);
  await online.tmaxfs(['unmount', online.mountpoint]);
  const pool = await MountedPool.start(t, {
    ...online.options,
    cacheDirectory: online.cacheDirectory,
    args: ['--offline'],
    env: { TMAXFS_SOURCE: `dir:${folder},hub` },
  });
  t.regex((await read(pool, 'v/t0.sif')).stderr, /No route to host/);
  const { lastFailures } = await pool.status();
  t.is(lastFailures[0]?.message, `images/0.sif is not in dir:${folder}`);
});

test.serial(
  'a directory that this user may not enter is told of at the start, and in status, until it can be',
  async (t) => {
    const files = smallPool(2);
    const prepared = await MountedPool.prepare(t, files);
    const folder = downloaded(t, prepared, 2);
    const args = ['--source', `dir:${folder}`, '--source', 'hub'];
    const pool = await MountedPool.prepare(t, { ...files, uid: 1000, args });
    const { exitCode, stdout, stderr } = await pool.tryMount();
    t.is(exitCode, 0, stderr);
    const words = `nothing comes from the source dir:${folder}: EACCES: permission denied`;
    t.true(stdout.includes(`warning: ${words}`), stdout);
    t.is(pool.log().filter(({ msg }) => String(msg).startsWith(words)).length, 1);
    const screen = (await pool.tmaxfs(['status', pool.mountpoint])).stdout;
    t.true(screen.includes(words), screen);
    t.true((await read(pool, 'v/t1.sif')).stdout.startsWith(pool.options.files[1]?.sha256 ?? '?'));
    t.like((await pool.status()).sources[0]?.health, { failuresInARow: 2, refused: 0 });
    chmodSync(folder, 0o755);
    t.true((await read(pool, 'v/t0.sif')).stdout.startsWith(pool.options.files[0]?.sha256 ?? '?'));
    t.like((await pool.status()).sources[0]?.health, { failuresInARow: 0, brought: 1 });
  },
);

test.serial('sources are asked in their order: the Hub for what a directory does not have, or has wrong', async (t) => {
  const files = smallPool(3);
  const prepared = await MountedPool.prepare(t, files);
  const folder = downloaded(t, prepared, 2);
  const pool = await MountedPool.start(t, { ...files, args: ['--source', `dir:${folder}`, '--source', 'hub'] });
  for (const [index, file] of pool.options.files.entries()) {
    t.true((await read(pool, `v/t${index}.sif`)).stdout.startsWith(file.sha256));
  }
  const fetched = pool.hub.requests.filter(({ server }) => server === 'cdn').map(({ file }) => file);
  t.deepEqual([...new Set(fetched)].sort(), ['images/1.sif', 'images/2.sif']);
  t.truthy(await pool.logged(({ code, source }) => code === 'sha256-mismatch' && source === `dir:${folder}`));
  t.regex((await pool.tmaxfs(['status', pool.mountpoint])).stdout, new RegExp(`; from dir:${folder}, hub;`));
  const first = await MountedPool.start(t, { ...files, args: ['--source', 'hub', '--source', `dir:${folder}`] });
  await read(first, 'v/t0.sif');
  t.is(first.hub.requests.filter(({ server }) => server === 'cdn').length, 1);
});

test.serial('a directory that is not there keeps the mount from starting, and is named', async (t) => {
  const pool = await MountedPool.prepare(t, { ...smallPool(1), args: ['--source', 'dir:/nonexistent'] });
  const { exitCode, stderr } = await pool.tryMount();
  t.is(exitCode, 1);
  t.regex(stderr, /the source dir:\/nonexistent can't be read: ENOENT/);
});
