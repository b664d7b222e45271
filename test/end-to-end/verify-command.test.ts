/** `tmaxfs verify` beside a running daemon, on a cache that real opens have filled. */

import { once } from 'node:events';
import { existsSync, readFileSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import * as v from 'valibot';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import { flipBit } from '../support/bit-rot.js';
import { MountedPool, POOL_NAME } from '../support/mounted-pool.js';
import { tinyImage } from '../support/sif-writer.js';

const Line = v.object({
  variant: v.nullable(v.string()),
  task: v.nullable(v.string()),
  image: v.nullable(v.string()),
  blob: v.string(),
  rc: v.number(),
  err: v.string(),
  level: v.string(),
});
const parseLines = (text: string) =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => v.parse(Line, JSON.parse(line)));

const FILES = [0, 1, 2, 3].map((seed) => fileOf(`images/${seed}.sif`, tinyImage(seed, 200_000)));
/** Task t0 is in both variants; the image 3 belongs to no task. */
const TASKS = { v: { t0: 'images/0.sif', t1: 'images/1.sif' }, w: { t0: 'images/0.sif', t2: 'images/2.sif' } };

function pathOf(pool: MountedPool, { sha256 }: Pick<FakeFile, 'sha256'>): string {
  return join(pool.cacheDirectory, 'blobs', sha256.slice(0, 2), sha256);
}

function verify(pool: MountedPool, ...args: string[]) {
  return pool.tmaxfs(['verify', '--cache-dir', pool.cacheDirectory, '--repo', POOL_NAME, ...args]);
}

async function fetched(t: ExecutionContext, ...paths: string[]): Promise<MountedPool> {
  const pool = await MountedPool.start(t, { files: FILES, tasks: TASKS });
  for (const path of paths) t.is((await pool.run('cat', [pool.path(path)])).exitCode, 0, path);
  await closed(pool);
  return pool;
}

/** The kernel tells the daemon of a close when it gets round to it, and the daemon notes the last use then. */
async function closed(pool: MountedPool): Promise<void> {
  while ((await pool.status()).cache.leasedBlobs > 0);
  await pool.status();
}

const [image0, image1] = FILES as [FakeFile, FakeFile];

test.serial('what is sound is one line a task with rc 0, and what no task names is a line too', async (t) => {
  const pool = await fetched(t, 'v/t0.sif', 'v/t1.sif', 'pool/3.sif');
  const before = statSync(pathOf(pool, image0));
  const requests = pool.hub.requests.all.length;
  const { exitCode, stdout, stderr } = await verify(pool, '--jsonl', '-');
  t.is(exitCode, 0, stderr);
  const lines = parseLines(stdout);
  t.deepEqual(
    lines.map(({ variant, task, image, rc, err, level }) => [variant, task, image, rc, err, level].join()).sort(),
    [
      ',,images/3.sif,0,,structure',
      'v,t0,images/0.sif,0,,structure',
      'v,t1,images/1.sif,0,,structure',
      'w,t0,images/0.sif,0,,structure',
    ],
  );
  t.is(lines.find(({ task }) => task === 't1')?.blob, image1.sha256);
  t.regex(stderr, /^3 images .* 0 of them failed$/m);
  t.regex(stderr, /^1 task left out: not on this disk$/m);
  t.is(pool.hub.requests.all.length, requests, 'no request');
  t.is(statSync(pathOf(pool, image0)).atimeMs, before.atimeMs);
});

test.serial('one flipped bit is rc 1 and exit code 1, named on stderr, and the daemon fetches it anew', async (t) => {
  const pool = await fetched(t, 'v/t0.sif', 'v/t1.sif');
  const report = join(pool.folder, 'report.jsonl');
  utimesSync(pathOf(pool, image1), new Date(1000), statSync(pathOf(pool, image1)).mtime);
  flipBit(pathOf(pool, image1), 150_000);
  const { exitCode, stderr } = await verify(pool, '--jsonl', report);
  t.is(exitCode, 1);
  t.regex(stderr, /^failed: v\/t1 \(images\/1\.sif\): .*sha256/m);
  const lines = parseLines(readFileSync(report, 'utf8'));
  t.deepEqual(
    lines.filter(({ rc }) => rc !== 0).map(({ variant, task, rc }) => ({ variant, task, rc })),
    [{ variant: 'v', task: 't1', rc: 1 }],
  );
  t.is(lines.length, 3);
  t.true(existsSync(pathOf(pool, image1)), 'nothing is evicted');
  t.is(statSync(pathOf(pool, image1)).atimeMs, 1000);

  const sum = await pool.run('sha256sum', [pool.path('v/t1.sif')]);
  t.true(sum.stdout.startsWith(image1.sha256));
  t.is(pool.hub.requests.about('images/1.sif', 'cdn').length, 2);
  t.is(pool.hub.requests.about('images/0.sif', 'cdn').length, 1);
  t.is((await verify(pool)).exitCode, 0);
});

test.serial('an image found damaged while a sandbox holds it is refused to others until it is closed', async (t) => {
  const pool = await fetched(t, 'v/t1.sif');
  const holder = execa('sh', ['-c', 'exec 3< "$1"; echo open; read line', 'sh', pool.path('v/t1.sif')], {
    reject: false,
  });
  await once(holder.stdout, 'data');
  flipBit(pathOf(pool, image1), 150_000);
  t.is((await verify(pool, '--task', 't1')).exitCode, 1);
  const refused = await pool.run('cat', [pool.path('v/t1.sif')]);
  t.regex(refused.stderr, /Bad message/);
  t.is(refused.stdout, '');
  const { quarantine, cache } = await pool.status();
  t.like(quarantine[0], { cause: 'disk', path: 'images/1.sif' });
  t.is(cache.leasedBlobs, 1);
  holder.stdin.end('\n');
  await holder;
  await closed(pool);
  const sum = await pool.run('sha256sum', [pool.path('v/t1.sif')]);
  t.true(sum.stdout.startsWith(image1.sha256), sum.stderr);
});

test.serial('--retry gives a refused image another chance with the running daemon', async (t) => {
  const image = tinyImage(1);
  image.fill(0, image.indexOf('hsqs'), image.indexOf('hsqs') + 96);
  const pool = await MountedPool.start(t, {
    files: [fileOf('images/0.sif', image)],
    tasks: { v: { t0: 'images/0.sif' }, w: { t1: 'images/0.sif' } },
  });
  const transfers = () => pool.hub.requests.about('images/0.sif', 'cdn').length;
  const open = () => pool.run('cat', [pool.path('v/t0.sif')]);
  await open();
  t.regex((await open()).stderr, /Bad message/);
  t.is(transfers(), 1);
  const retried = await verify(pool, '--retry', '--variant', 'v');
  t.is(retried.exitCode, 0);
  t.regex(retried.stderr, /images\/0\.sif is no longer refused/);
  t.deepEqual((await pool.status()).quarantine, []);
  t.regex((await open()).stderr, /Bad message/);
  t.is(transfers(), 2, 'it was fetched again');
});

test.serial('a choice leaves out the rest; a name that the pool does not know is wrong usage', async (t) => {
  const pool = await fetched(t, 'v/t0.sif', 'v/t1.sif');
  flipBit(pathOf(pool, image1), 150_000);
  const { exitCode, stdout } = await verify(pool, '--variant', 'w', '--jsonl', '-');
  t.is(exitCode, 0, 'the damaged one is not of this variant');
  t.deepEqual(
    parseLines(stdout).map(({ variant, task }) => `${variant}/${task}`),
    ['w/t0'],
  );
  const unknown = await verify(pool, '--variant', 'nothing');
  t.is(unknown.exitCode, 2);
  t.regex(unknown.stderr, /"nothing"/);
});

test.serial('without a cache, or without a catalog for a name, it fails and says so', async (t) => {
  const pool = await fetched(t, 'v/t0.sif');
  const nowhere = await pool.tmaxfs(['verify', '--cache-dir', join(pool.folder, 'nowhere')]);
  t.is(nowhere.exitCode, 1);
  t.regex(nowhere.stderr, /no cache at .*nowhere/);
  t.false(existsSync(join(pool.folder, 'nowhere')));
  const other = ['verify', '--cache-dir', pool.cacheDirectory, '--repo', 'other/pool'];
  const named = await pool.tmaxfs([...other, '--variant', 'v']);
  t.is(named.exitCode, 1);
  t.regex(named.stderr, /never resolved on this disk/);
  const unnamed = await pool.tmaxfs([...other, '--jsonl', '-']);
  t.is(unnamed.exitCode, 0);
  t.deepEqual(
    parseLines(unnamed.stdout).map(({ image, blob }) => [image, blob]),
    [[null, image0.sha256]],
  );
});
