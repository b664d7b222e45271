import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import { MountedPool } from '../support/mounted-pool.js';
import { packagePath } from '../support/paths.js';
import { smallPool } from '../support/small-pool.js';

const MIB = 2 ** 20;

/** Which blobs are in the cache. */
function cached(pool: MountedPool): boolean[] {
  return pool.options.files.map(({ sha256 }) =>
    existsSync(join(pool.cacheDirectory, 'blobs', sha256.slice(0, 2), sha256)),
  );
}

/** `tmaxfs prefetch --tasks -`, with these lines at its standard input. */
function prefetchLines(pool: MountedPool, lines: readonly string[]) {
  const command = `${process.execPath} ${packagePath('bin', 'tmaxfs.js')} prefetch ${pool.mountpoint} --tasks -`;
  return pool.run('sh', ['-c', `printf '%s\\n' ${lines.join(' ')} | ${command}`]);
}

test.serial('a variant is fetched, each blob once; a second run fetches nothing', async (t) => {
  const { files, tasks } = smallPool(6);
  const pool = await MountedPool.start(t, { files, tasks: { ...tasks, w: { other: 'images/0.sif' } } });
  const first = await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'v']);
  t.is(first.exitCode, 0, first.stderr);
  t.regex(first.stdout, /^6 of 6 images on disk and proven \(1\.\d MiB of 1\.\d MiB\)$/);
  t.true(cached(pool).every(Boolean));
  t.is(pool.hub.requests.filter(({ server }) => server === 'cdn').length, 6);
  const second = await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'w']);
  t.regex(second.stdout, /^1 of 1 image /);
  t.is(pool.hub.requests.filter(({ server }) => server === 'cdn').length, 6);
  t.like((await pool.status()).opens, { hits: 0, misses: 0 }, 'it is no use');
});

test.serial('tasks come from a file or from standard input; each failure is named, exit 1', async (t) => {
  const { files, tasks } = smallPool(4);
  const pool = await MountedPool.start(t, { files, tasks });
  const list = join(pool.folder, 'tasks');
  writeFileSync(list, '# two of them\nt0\nv/t1.sif\n\n');
  t.is((await pool.tmaxfs(['prefetch', pool.mountpoint, '--tasks', list])).exitCode, 0);
  t.deepEqual(cached(pool), [true, true, false, false]);
  pool.hub.fault({ server: 'hub', path: 'images/2.sif', fault: { kind: 'status', status: 403 }, requests: 'every' });
  const piped = await prefetchLines(pool, ['t2', 't3', 'nonsense']);
  t.is(piped.exitCode, 1);
  t.regex(piped.stderr, /^failed: v\/t2 \(images\/2\.sif\): EACCES: /m);
  t.regex(piped.stderr, /^failed: nonsense: no such task/m);
  t.regex(piped.stdout, /^1 of 2 images .*; 2 failed$/);
  t.deepEqual(cached(pool), [true, true, false, true]);
});

test.serial('what can’t fit is refused with the numbers before anything is fetched', async (t) => {
  const { files, tasks } = smallPool(4, MIB);
  const pool = await MountedPool.start(t, { files, tasks, args: ['--cache-size', '3M'] });
  const { exitCode, stderr } = await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'v']);
  t.is(exitCode, 1);
  t.regex(stderr, /no room for 4 images of \d+ bytes in all: the cache may hold 3145728 bytes.*--cache-size/);
  t.is(pool.hub.requests.filter(({ server }) => server === 'cdn').length, 0);
});

test.serial('wrong usage is told: nothing chosen, no such variant, no such file', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.start(t, { files, tasks });
  t.is((await pool.tmaxfs(['prefetch', pool.mountpoint])).exitCode, 2);
  t.is((await pool.tmaxfs(['prefetch', pool.mountpoint, '--tasks', '/nonexistent'])).exitCode, 2);
  const unknown = await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'x']);
  t.is(unknown.exitCode, 1);
  t.regex(unknown.stderr, /no variant "x", only v/);
});

test.serial('an open goes before a running prefetch, which gives way and goes on where it was', async (t) => {
  const { files, tasks } = smallPool(3, 3 * MIB);
  const pool = await MountedPool.start(t, { files, tasks, args: ['--max-fetches', '1', '--idle-timeout', '60'] });
  pool.hub.fault({
    server: 'cdn',
    path: 'images/0.sif',
    fault: { kind: 'stall', afterBytes: MIB },
    requests: [1],
  });
  const prefetched = prefetchLines(pool, ['t0', 't1']);
  await pool.hub.requests.waitFor(({ file, bytesSent }) => file === 'images/0.sif' && bytesSent === MIB);
  while (((await pool.status()).fetches.running[0]?.receivedBytes ?? 0) === 0) await new Promise(setImmediate);
  const startedAt = performance.now();
  const opened = await pool.run('cmp', [pool.path('v/t2.sif'), '/dev/null']);
  t.regex(opened.stderr, /EOF on \/dev\/null/);
  t.true(performance.now() - startedAt < 30_000, 'it did not wait for what stalls');
  t.is((await prefetched).exitCode, 0);
  const [, resumed] = pool.hub.requests.about('images/0.sif', 'cdn');
  t.is(resumed?.headers.range, `bytes=${MIB}-${(files[0]?.sizeBytes ?? 0) - 1}`);
});

test.serial('ending the command ends the fetching, what has arrived stays, and a second run goes on', async (t) => {
  const { files, tasks } = smallPool(2, 3 * MIB);
  const pool = await MountedPool.start(t, { files, tasks });
  const stall = pool.hub.fault({ server: 'cdn', fault: { kind: 'stall', afterBytes: MIB }, requests: 'every' });
  const command = execa(
    process.execPath,
    [packagePath('bin', 'tmaxfs.js'), 'prefetch', pool.mountpoint, '--variant', 'v'],
    { reject: false },
  );
  const started = (name: string) =>
    pool.hub.requests.waitFor(({ file, bytesSent }) => file === name && bytesSent === MIB);
  await Promise.all([started('images/0.sif'), started('images/1.sif')]);
  while ((await pool.status()).fetches.running.some(({ receivedBytes }) => receivedBytes < MIB)) {
    await new Promise(setImmediate);
  }
  command.kill('SIGINT');
  const ended = await command;
  t.is(ended.exitCode, 1);
  t.regex(String(ended.stderr), /run it again to go on/);
  while ((await pool.status()).fetches.running.length > 0) await new Promise(setImmediate);
  stall.remove();
  pool.hub.requests.clear();
  t.is((await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'v'])).exitCode, 0);
  const ranges = pool.hub.requests.filter(({ server }) => server === 'cdn').map(({ headers }) => headers.range);
  t.true(
    ranges.every((range) => range?.startsWith(`bytes=${MIB}-`)),
    ranges.join(),
  );
});

test.serial('on a terminal it draws bytes, rate, images and time left', async (t) => {
  const { files, tasks } = smallPool(2);
  const pool = await MountedPool.start(t, { files, tasks });
  const words = `${process.execPath} ${packagePath('bin', 'tmaxfs.js')} prefetch ${pool.mountpoint} --variant v`;
  const { stdout } = await pool.run('script', ['-qec', words, '/dev/null']);
  t.regex(stdout, /100% {2}.* KiB of .* KiB {2}2\/2 images {2}.*\/s {2}\S+ left/);
});
