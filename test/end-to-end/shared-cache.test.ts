/** Two daemons on one cache directory, and what is left of one that is killed. */

import { createHash } from 'node:crypto';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { hasEnded } from '../support/processes.js';
import { contentOf, smallPool } from '../support/small-pool.js';

const small = smallPool(5);
const imageBytes = Math.max(...small.files.map((file) => contentOf(file).length));
const limits = ['--cache-size', String(3 * imageBytes), '--reserve-free', '0'];

function blobsIn(cacheDirectory: string): string[] {
  const names = readdirSync(join(cacheDirectory, 'blobs'), { recursive: true, encoding: 'utf8' });
  return names.map((name) => join(cacheDirectory, 'blobs', name)).filter((path) => statSync(path).isFile());
}

test('two mounts on one cache directory keep to one limit, and share what they fetch', async (t) => {
  const first = await MountedPool.start(t, { ...small, args: limits });
  const second = await MountedPool.start(t, { ...small, args: limits, cacheDirectory: first.cacheDirectory });
  for (const [index, pool] of [first, second, first, second, first].entries()) {
    t.is((await pool.run('cat', [pool.path(`v/t${index}.sif`)])).exitCode, 0);
    t.true(blobsIn(first.cacheDirectory).length <= 3);
  }
  t.is((await second.run('cat', [second.path('v/t4.sif')])).exitCode, 0);
  t.is(second.hub.requests.about('images/4.sif', 'cdn').length, 0, 'the first has fetched it');
  const onDisk = blobsIn(first.cacheDirectory).reduce((sum, path) => sum + statSync(path).size, 0);
  await eventually('both know what is there', async () => {
    const uses = await Promise.all([first, second].map(async (pool) => (await pool.status()).cache.usedBytes));
    return uses.every((usedBytes) => usedBytes === onDisk) || undefined;
  });
});

test('what a killed daemon had open is read on, and evicted by no other until its mount is gone', async (t) => {
  const killed = await MountedPool.start(t, { ...small, args: limits });
  const { pid, passthrough } = await killed.status();
  t.true(passthrough, 'without it nothing is read on after a kill');
  const reader = killed.spawn(['sh', '-c', 'exec 3<"$0"; echo open; read _; sha256sum <&3', killed.path('v/t0.sif')]);
  await eventually('the image is open', async () => (await killed.status()).cache.leasedBlobs === 1 || undefined);
  const [blob = ''] = blobsIn(killed.cacheDirectory);
  process.kill(pid, 'SIGKILL');
  await eventually('the daemon has ended', () => hasEnded(pid) || undefined);

  const other = await MountedPool.start(t, { ...small, args: limits, cacheDirectory: killed.cacheDirectory });
  const read = async (task: string) => t.is((await other.run('cat', [other.path(`v/${task}.sif`)])).exitCode, 0);
  for (const task of ['t1', 't2', 't3', 't4']) await read(task);
  t.true(existsSync(blob));
  t.true(blobsIn(killed.cacheDirectory).length <= 3);
  reader.stdin?.end('\n');
  const { stdout } = await reader;
  const digest = createHash('sha256').update(contentOf(small.files[0])).digest('hex');
  t.true(String(stdout).includes(digest), String(stdout));
  // The kernel keeps what a mount had open for as long as there is the mount.
  t.is((await killed.tmaxfs(['unmount', killed.mountpoint])).exitCode, 0);
  await eventually('it is evicted', async () => {
    for (const task of ['t1', 't2', 't3', 't4']) await read(task);
    return !existsSync(blob) || undefined;
  });
});
