/** What a killed daemon leaves, and who takes it away. */

import { once } from 'node:events';
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { livenessOf } from '../../src/fuse/liveness.js';
import { readMounts, topMountAt } from '../../src/fuse/mount-table.js';
import { eventually, ORDINARY_UID } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { hasEnded } from '../support/processes.js';
import { smallPool } from '../support/small-pool.js';

async function kill(pool: MountedPool): Promise<void> {
  process.kill((await pool.status()).pid, 'SIGKILL');
  // Asked by root: of an ordinary user's mount too.
  await eventually('the mount is dead', async () => {
    const mount = topMountAt(pool.mountpoint);
    return (mount !== undefined && (await livenessOf(mount)) === 'dead') || undefined;
  });
}

for (const [who, uid] of [
  ['root', undefined],
  ['an ordinary user', ORDINARY_UID],
] as const) {
  test.serial(`unmount --dead of ${who} takes a dead mount away, and leaves one that lives`, async (t) => {
    const pool = await MountedPool.start(t, { ...smallPool(1), ...(uid === undefined ? {} : { uid }) });
    const unmountDead = () => pool.tmaxfs(['unmount', pool.mountpoint, '--dead']);
    t.deepEqual(await unmountDead(), { exitCode: 0, stdout: '', stderr: '' });
    t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0, 'it lives on');
    await kill(pool);
    t.deepEqual(await unmountDead(), {
      exitCode: 0,
      stdout: `${pool.mountpoint}: a dead mount is taken away`,
      stderr: '',
    });
    t.is(topMountAt(pool.mountpoint), undefined);
    t.deepEqual(await unmountDead(), { exitCode: 0, stdout: '', stderr: '' }, 'there is nothing left to do');
  });
}

test.serial('without a mount point, unmount --dead looks at every mount', async (t) => {
  const roots = await MountedPool.start(t, smallPool(1));
  const users = await MountedPool.start(t, { ...smallPool(1), uid: ORDINARY_UID });
  const alive = await MountedPool.start(t, { ...smallPool(1), uid: ORDINARY_UID });
  await kill(roots);
  await kill(users);
  // In a mount namespace of its own: the mounts of whoever else works on this machine are not touched.
  const command = [process.execPath, ...roots.executable, 'unmount', '--dead'];
  const { exitCode, stdout } = await roots.run('unshare', ['--mount', ...command]);
  t.is(exitCode, 0);
  for (const { mountpoint } of [roots, users]) t.true(stdout.includes(`${mountpoint}: a dead mount is taken away`));
  t.false(stdout.includes(alive.mountpoint));
});

/** Where this machine has cgroups of version 2. */
const CGROUPS = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].find((path) =>
  existsSync(join(path, 'cgroup.controllers')),
);

test.serial(
  'what the end of a batch step leaves, which kills every process in its cgroup, the next mount cleans',
  async (t) => {
    const pool = await MountedPool.start(t, smallPool(2));
    const cgroup = join(CGROUPS ?? '', `tmaxfs-test-${process.pid}`);
    mkdirSync(cgroup);
    t.teardown(() => rmdirSync(cgroup));
    const { pid } = await pool.status();
    const reader = pool.spawn(['sh', '-c', 'exec 3<"$0"; echo open; exec sleep 60', pool.path('v/t0.sif')]);
    await once(reader.stdout, 'data');
    for (const member of [pid, reader.pid]) writeFileSync(join(cgroup, 'cgroup.procs'), String(member));
    writeFileSync(join(cgroup, 'cgroup.kill'), '1');
    t.is((await reader).signal, 'SIGKILL');
    await eventually('the daemon has ended', () => hasEnded(pid) || undefined);
    t.is(topMountAt(pool.mountpoint)?.type, 'fuse.tmaxfs', 'its mount is left');
    await pool.mount();
    t.is((await pool.run('cat', [pool.path('v/t1.sif')])).exitCode, 0);
    t.is(readMounts().filter(({ mountpoint }) => mountpoint === pool.mountpoint).length, 1);
  },
);
