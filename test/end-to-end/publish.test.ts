/** Mounts of several nodes that share a directory, by the real command: the first pays, and nobody else does. */

import { createHash } from 'node:crypto';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { publishedIn } from '../support/destinations.js';
import { memoryDisk } from '../support/memory-disk.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool, type MountedPoolOptions } from '../support/mounted-pool.js';
import { contentOf, smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const small = smallPool(4);
const digests = small.files.map((file) => createHash('sha256').update(contentOf(file)).digest('hex'));

const nodes = (t: ExecutionContext, count: number, options: Partial<MountedPoolOptions>) =>
  Promise.all(Array.from({ length: count }, () => MountedPool.start(t, { ...small, ...options })));
const fetchedOf = (pool: MountedPool) =>
  pool.hub.requests.filter(({ server }) => server === 'cdn').map(({ file }) => file);
const readAll = async (t: ExecutionContext, pool: MountedPool) => {
  const { stdout, stderr } = await pool.run(
    'sha256sum',
    small.files.map((_, index) => pool.path(`v/t${index}.sif`)),
  );
  t.deepEqual(
    stdout
      .split('\n')
      .filter(Boolean)
      .map((line) => line.slice(0, 64)),
    digests,
    stderr,
  );
};
const isPublished = (pool: MountedPool) =>
  eventually('all is published', async () => {
    const [line] = (await pool.status()).publishing;
    return line?.queued === 0 ? line : undefined;
  });

test.serial('what one node has fetched the others take from the directory, each image from the Hub once', async (t) => {
  const folder = temporaryFolder(t);
  const pools = await nodes(t, 3, { args: ['--publish', `dir:${folder}`, '--idle-timeout', '90'] });
  await Promise.all(pools.map((pool) => readAll(t, pool)));
  for (const line of pools.flatMap((pool) => pool.log()))
    t.false(/no other node is asked|is slow/.test(String(line['msg'])), JSON.stringify(line));
  t.deepEqual(pools.flatMap(fetchedOf).sort(), small.files.map(({ path }) => path).sort());
  const lines = await Promise.all(pools.map(isPublished));
  t.is(
    lines.reduce((sum, { published }) => sum + published, 0),
    small.files.length,
  );
  t.deepEqual(publishedIn(folder), [...digests].sort());
  const [pool] = pools;
  t.regex(
    (await pool?.tmaxfs(['status', pool.mountpoint]))?.stdout ?? '',
    new RegExp(`publish   to dir:${folder}: \\d written`),
  );
  const sources = (await pool?.status())?.sources.map(({ name }) => name);
  t.deepEqual(sources, [`dir:${folder}`, 'hub'], 'it is asked first');
});

test.serial('a directory that is full fails no open, and the log says so once', async (t) => {
  const { path } = await memoryDisk(t, 2 ** 20);
  const [pool = t.fail()] = await nodes(t, 1, { args: ['--publish', `dir:${path}`, '--publish-reserve', '90%'] });
  await readAll(t, pool);
  const { failure, published } = await isPublished(pool);
  t.is(published, 0);
  // Its turn was asked for, and it was known there that nothing fits.
  if (failure !== null) t.is(failure.errno, 'ENOSPC');
  t.true(pool.log().filter(({ msg }) => /images are not published/.test(String(msg))).length <= 1);
  t.deepEqual(publishedIn(path), []);
});

test.serial('a daemon that is killed while it has its turn leaves it to the next', async (t) => {
  const folder = temporaryFolder(t);
  const [killed = t.fail(), other = t.fail()] = await nodes(t, 2, {
    args: ['--publish', `dir:${folder}`, '--idle-timeout', '90'],
  });
  killed.hub.fault({ path: 'images/0.sif', fault: { kind: 'stall' }, requests: 'every' });
  void killed.run('cat', [killed.path('v/t0.sif')]);
  await eventually('it fetches', async () => {
    const [running] = (await killed.status()).fetches.running;
    return (running?.phase === 'fetching' && running.source === 'hub') || undefined;
  });
  const reading = other.run('sha256sum', [other.path('v/t0.sif')]);
  await eventually('the other waits', async () => {
    const [running] = (await other.status()).fetches.running;
    return (running?.phase === 'queued' && running.source === `dir:${folder}`) || undefined;
  });
  t.deepEqual(fetchedOf(other), []);
  process.kill((await killed.status()).pid, 'SIGKILL');
  t.true((await reading).stdout.startsWith(digests[0] ?? ''));
  t.deepEqual([...new Set(fetchedOf(other))], ['images/0.sif']);
});

test.serial(
  'a cache of tmaxfs, or what is no place to publish, keeps the mount from starting, and is named',
  async (t) => {
    const pool = await MountedPool.prepare(t, small);
    for (const [args, words] of [
      [['--publish', `dir:${pool.cacheDirectory}`], /is a cache of tmaxfs/],
      [['--publish', `dir:${join(pool.folder, 'none')}`], /none can't be (read|used): ENOENT/],
      [['--publish', 'hub'], /--publish takes "dir:\/path"/],
    ] as const) {
      const { exitCode, stderr } = await pool.tmaxfs([...pool.mountCommand, ...args]);
      t.not(exitCode, 0);
      t.regex(stderr, words);
    }
  },
);
