/** `tmaxfs status` of a busy daemon: what it tells of waits, speeds and sources, and that it goes on while it is watched. */

import test from 'ava';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

test.serial('who waits is named, with how fast the fetch is and when it will be done', async (t) => {
  const pool = await MountedPool.start(t, smallPool(2, 3_000_000));
  pool.hub.fault({ server: 'cdn', path: 'images/0.sif', fault: { kind: 'status', status: 429 }, requests: [1] });
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
  pool.hub.fault({
    server: 'cdn',
    path: 'images/1.sif',
    fault: { kind: 'slow', bytesPerSecond: 100_000 },
    requests: 'every',
  });
  const waiting = pool.spawn(['head', '-c', '1', pool.path('v/t1.sif')]);
  const status = await eventually('a speed is known', async () => {
    const seen = await pool.status();
    return seen.fetches.running[0]?.bytesPerSecond ? seen : undefined;
  });
  const { stdout } = await pool.tmaxfs(['status', pool.mountpoint]);
  waiting.kill('SIGKILL');
  await waiting;

  const [caller, ...others] = status.opens.waiting;
  t.like(caller, { pid: waiting.pid, command: 'head', name: 'v/t1.sif' });
  t.deepEqual(others, []);
  const [fetch] = status.fetches.running;
  const bytesPerSecond = fetch?.bytesPerSecond ?? 0;
  t.true(bytesPerSecond > 20_000 && bytesPerSecond < 500_000, String(bytesPerSecond));
  const missingBytes = (fetch?.sizeBytes ?? 0) - (fetch?.receivedBytes ?? 0);
  t.is(fetch?.etaSeconds, Math.ceil(missingBytes / bytesPerSecond));
  const { hits, waited } = status.opens.latency;
  t.true((hits.p50Ms ?? Number.NaN) < (waited.p50Ms ?? Number.NaN), JSON.stringify(status.opens.latency));
  t.is(status.fetches.retries, 1);
  const storage = status.sources[0]?.requests.find(({ kind }) => kind === 'storage');
  t.like(storage, { tooManyRequests: 1, isUnanswered: false });

  t.regex(
    stdout,
    new RegExp(`v/t1 {2}fetching \\d+% of .*, .*/s, .* left, for \\d+ s, 1 waiting: ${waiting.pid} \\(head\\)`),
  );
  t.regex(stdout, /^ {2}opens .*1 at once from the cache \(p50 .*, p99 .*\), 2 that had to wait/m);
  t.regex(stdout, /^ {2}hub .*storage: "too many requests" \(429\) 1 time/m);
  t.regex(stdout, /^ {2}cache .*\[-{20}\]/m);
  t.true(stdout.trimEnd().split('\n').length < 24, 'one screen');
});

test.serial('a watched status says that its daemon has gone, and goes on with the next', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const first = (await pool.status()).pid;
  const watch = pool.spawn([process.execPath, ...pool.executable, 'status', pool.mountpoint, '--watch']);
  t.teardown(async () => {
    watch.kill('SIGKILL');
    await watch;
  });
  let seen = '';
  watch.stdout.on('data', (chunk: Buffer) => {
    seen += String(chunk);
  });
  const until = (words: string) => eventually(words, () => seen.includes(words) || undefined);
  await until(`pid ${first} `);
  await pool.tmaxfs(['unmount', pool.mountpoint]);
  await until('no tmaxfs daemon serves');
  await pool.mount();
  await until(`pid ${(await pool.status()).pid} `);
  t.is(watch.exitCode, null, 'it goes on');
});

test.serial('a terminal is drawn over, never scrolled, however small it is', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const command = [process.execPath, ...pool.executable, 'status', pool.mountpoint, '--watch'].join(' ');
  // script(1) makes a terminal of its own.
  const watch = pool.spawn([
    'script',
    '--quiet',
    '--return',
    '--command',
    `stty rows 6 columns 80; ${command}`,
    '/dev/null',
  ]);
  t.teardown(async () => {
    watch.kill('SIGTERM');
    await watch;
  });
  let seen = '';
  watch.stdout.on('data', (chunk: Buffer) => {
    seen += String(chunk);
  });
  await eventually('it is drawn twice', () => seen.split('\u001b[H').length > 2 || undefined);
  const [, first = ''] = seen.split('\u001b[H');
  t.true(first.endsWith('\u001b[J'));
  const lines = first.slice(0, first.lastIndexOf('\n')).split('\n');
  t.true(lines.length <= 5, first);
  t.regex(lines.at(-1) ?? '', /^\(\d+ more lines in a larger window\)/);
});
