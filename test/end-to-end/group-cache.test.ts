/** Mounts of two users on one cache directory that their group shares, by the real command. */

import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { ANNA, BERT, GROUP, groupFolder } from '../support/group.js';
import { MountedPool, type MountedPoolOptions } from '../support/mounted-pool.js';
import { seeingOnly } from '../support/seen-mounts.js';
import { contentOf, smallPool } from '../support/small-pool.js';

const small = smallPool(5);
const imageBytes = Math.max(...small.files.map((file) => contentOf(file).length));
const args = ['--shared-cache', '--cache-size', String(3 * imageBytes), '--reserve-free', '0'];

function blobsIn(cacheDirectory: string): string[] {
  const names = readdirSync(join(cacheDirectory, 'blobs'), { recursive: true, encoding: 'utf8' });
  return names.map((name) => join(cacheDirectory, 'blobs', name)).filter((path) => statSync(path).isFile());
}

function mountOf(t: ExecutionContext, cacheDirectory: string, uid: number, more: Partial<MountedPoolOptions> = {}) {
  return MountedPool.start(t, { ...small, args, cacheDirectory, uid, gid: GROUP, ...more });
}

test.serial('two users of a group fetch each image once, keep to one limit, and heed each other’s pins', async (t) => {
  const root = groupFolder(t);
  const anna = await mountOf(t, root, ANNA, { umask: '077' });
  const bert = await mountOf(t, root, BERT);
  const read = async (pool: MountedPool, task: number) => {
    t.is((await pool.run('cat', [pool.path(`v/t${task}.sif`)])).exitCode, 0, `t${task}`);
    t.true(blobsIn(root).length <= 3);
  };
  const fetches = (pool: MountedPool, task: number) => pool.hub.requests.about(`images/${task}.sif`, 'cdn').length;
  await read(anna, 0);
  await read(bert, 0);
  await read(bert, 1);
  await read(anna, 1);
  t.deepEqual([fetches(anna, 0), fetches(bert, 0)], [1, 0]);
  t.deepEqual([fetches(anna, 1), fetches(bert, 1)], [0, 1]);

  t.is((await anna.tmaxfs(['pin', anna.mountpoint, anna.path('v/t0.sif')])).exitCode, 0);
  for (const task of [2, 3, 4]) await read(bert, task);
  await read(bert, 0);
  t.is(fetches(bert, 0), 0, 'what another user has pinned stays');
  const kept = await bert.tmaxfs(['evict', bert.mountpoint, bert.path('v/t0.sif')]);
  t.is(kept.exitCode, 1);
  t.regex(kept.stderr, /pinned/);
  t.is((await bert.tmaxfs(['unpin', bert.mountpoint, bert.path('v/t0.sif')])).exitCode, 0);
  t.is((await bert.tmaxfs(['evict', bert.mountpoint, bert.path('v/t0.sif')])).exitCode, 0);
  await read(anna, 0);
  t.is(fetches(anna, 0), 2);
});

test.serial('commands beside a daemon of a shared cache share it too, and say that it is shared', async (t) => {
  const root = groupFolder(t);
  const anna = await mountOf(t, root, ANNA, { umask: '077' });
  t.is((await anna.run('cat', [anna.path('v/t0.sif')])).exitCode, 0);
  const bert = await mountOf(t, root, BERT);
  t.true((await bert.status()).cache.isShared);
  t.regex(
    (await bert.tmaxfs(['status', bert.mountpoint])).stdout,
    new RegExp(`disk of ${root}, which its group shares`),
  );
  const shared = ['--cache-dir', root, '--shared-cache'];
  for (const words of [
    ['cache', 'ls', ...shared],
    ['cache', 'du', ...shared],
    ['cache', 'gc', ...shared],
    ['verify', ...shared, '--repo', 'test-org/test-pool'],
    ['doctor', ...shared, '--cache-size', '1M', '--reserve-free', '0'],
  ]) {
    const { exitCode, stdout, stderr } = await bert.tmaxfs(words);
    if (words[0] === 'doctor') t.regex(stdout, new RegExp(`${root} is shared by the members of group ${GROUP}`));
    else t.is(exitCode, 0, `${words.join(' ')}: ${stderr}`);
  }
  const own = await bert.tmaxfs(['cache', 'ls', '--cache-dir', root]);
  t.is(own.exitCode, 1);
  t.regex(own.stderr, /say so with --shared-cache/);
  // Nothing names it but the daemon.
  const user = ['setpriv', '--reuid', String(BERT), '--regid', String(GROUP), '--clear-groups'];
  const [file = '', ...words] = [...seeingOnly([bert.mountpoint]), ...user, process.execPath, ...bert.executable];
  const env = { PATH: process.env['PATH'] ?? '', HOME: bert.folder };
  const taken = await execa(file, [...words, 'cache', 'du'], { env, extendEnv: false, reject: false });
  t.is(taken.exitCode, 0, taken.stderr);
  t.regex(taken.stderr, new RegExp(`the daemon that is running has its own at ${root}`));
});
