/** `tmaxfs seed`: directories and registries filled by the real command, without a mount. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { filesIn, publishedIn } from '../support/destinations.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool, POOL_NAME } from '../support/mounted-pool.js';
import { startRegistry } from '../support/registry.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const small = smallPool(5);
const digests = small.files.map(({ sha256 }) => sha256 ?? '').sort();
const fetchedOf = (pool: MountedPool) => pool.hub.requests.filter(({ server }) => server === 'cdn').length;

function wordsOf(pool: MountedPool, to: string, ...more: readonly string[]): readonly string[] {
  return ['seed', '--to', to, '--repo', POOL_NAME, '--cache-dir', pool.cacheDirectory, '--variant', 'v', ...more];
}

test.serial(
  'a variant is brought to a directory; mounts take it from there, and the Hub is asked for nothing more',
  async (t) => {
    const folder = temporaryFolder(t);
    const pool = await MountedPool.prepare(t, { ...small, args: ['--source', `dir:${folder}`] });
    const { exitCode, stdout, stderr } = await pool.tmaxfs(wordsOf(pool, `dir:${folder}`));
    t.is(exitCode, 0, stderr);
    t.regex(stdout, /^5 of 5 images at dir:.* \(.*\), 5 of them written now$/m);
    t.deepEqual(publishedIn(folder), digests);
    t.deepEqual(filesIn(join(pool.cacheDirectory, 'blobs')), [], 'the cache is left as it was');
    const fetched = fetchedOf(pool);
    await pool.mount();
    for (const [index, file] of small.files.entries()) {
      const read = await pool.run('sha256sum', [pool.path(`v/t${index}.sif`)]);
      t.true(read.stdout.startsWith(file.sha256 ?? '?'), read.stderr);
    }
    // Beside a daemon on the same cache directory, and with nothing to do.
    const again = await pool.tmaxfs(wordsOf(pool, `dir:${folder}`));
    t.regex(again.stdout, /^5 of 5 images .* 0 of them written now$/m);
    t.is(fetchedOf(pool), fetched);
  },
);

test.serial('chosen tasks are brought to a registry', async (t) => {
  const server = await startRegistry(t);
  const pool = await MountedPool.prepare(t, small);
  const list = join(temporaryFolder(t), 'tasks');
  writeFileSync(list, 't1\nv/t3 # of that variant\n');
  const { exitCode, stdout, stderr } = await pool.tmaxfs(wordsOf(pool, server.place, '--tasks', list));
  t.is(exitCode, 0, stderr);
  t.regex(stdout, /^2 of 2 images at oci:/m);
  const tags = await fetch(`http://127.0.0.1:${server.port}/v2/pool/images/tags/list`);
  t.deepEqual(
    ((await tags.json()) as { tags: string[] }).tags.sort(),
    [1, 3].map((index) => `sif-${small.files[index]?.sha256}`).sort(),
  );
});

test.serial('each image that can’t be had is named, the others are brought, and the exit code is 1', async (t) => {
  const folder = temporaryFolder(t);
  const pool = await MountedPool.prepare(t, small);
  pool.hub.fault({ path: 'images/2.sif', fault: { kind: 'corrupt', atByte: 5000 }, requests: 'every' });
  const list = join(temporaryFolder(t), 'tasks');
  writeFileSync(list, 't1\nt2\nnone\n');
  const { exitCode, stdout, stderr } = await pool.tmaxfs(wordsOf(pool, `dir:${folder}`, '--tasks', list));
  t.is(exitCode, 1);
  t.regex(stdout, /^1 of 2 images .*; 2 failed$/m, stderr);
  t.regex(stderr, /failed: v\/t2 \(images\/2\.sif\): EBADMSG: /);
  t.regex(stderr, /failed: none: no such task/);
  t.deepEqual(publishedIn(folder), [small.files[1]?.sha256 ?? '?']);
});

test.serial('one that was killed on its way is gone on from', async (t) => {
  const folder = temporaryFolder(t);
  const pool = await MountedPool.prepare(t, small);
  const stall = pool.hub.fault({ path: 'images/4.sif', fault: { kind: 'stall' }, requests: 'every' });
  const words = wordsOf(pool, `dir:${folder}`, '--max-fetches', '1');
  const running = pool.spawn([process.execPath, ...pool.executable, ...words]);
  await eventually('four are there', () => publishedIn(folder).length === 4 || undefined);
  running.kill('SIGKILL');
  await running;
  stall.remove();
  const { exitCode, stdout, stderr } = await pool.tmaxfs(words);
  t.is(exitCode, 0, stderr);
  t.regex(stdout, /^5 of 5 images .* 1 of them written now$/m);
  t.deepEqual(publishedIn(folder), digests);
});

const refused = (name: string, to: (t: ExecutionContext) => string, words: RegExp, code: number) =>
  test.serial(`${name} is refused before anything is fetched`, async (t) => {
    const pool = await MountedPool.prepare(t, small);
    const { exitCode, stderr } = await pool.tmaxfs(wordsOf(pool, to(t)));
    t.is(exitCode, code);
    t.regex(stderr, words);
    t.is(pool.hub.requests.all.length, 0);
  });
refused(
  'a directory that is not there',
  () => 'dir:/nonexistent',
  /destination dir:\/nonexistent can't be used: ENOENT/,
  1,
);
refused('what is no destination', () => 'hub', /--to takes "dir:\/path" or "oci:\/\/host\/name"/, 2);
