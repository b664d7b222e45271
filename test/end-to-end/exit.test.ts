/** However a daemon ends, it ends: soon, by itself, and with nothing left behind. */

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { topMountAt } from '../../src/fuse/mount-table.js';
import { eventually, ORDINARY_UID } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { hasEnded } from '../support/processes.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

interface Ending {
  readonly pool: MountedPool;
  readonly daemon: number;
  /** A program with an open file, that reads it whole (and is told nothing of the daemon's end) when it is told to. */
  hold(): Promise<{ finish(): Promise<void> }>;
}

/** Mounts for one test, with one image on disk already and another that never arrives. */
async function ending(t: ExecutionContext, uid: number | undefined, args: readonly string[] = []): Promise<Ending> {
  const { files, tasks } = smallPool(2);
  const pool = await MountedPool.start(t, { files, tasks, args, ...(uid === undefined ? {} : { uid }) });
  pool.hub.fault({ path: 'images/1.sif', fault: { kind: 'stall' }, requests: 'every' });
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
  const { pid } = await pool.status();
  const hold = async () => {
    const script = 'exec 3<"$0"; echo open; read line; sha256sum <&3';
    const holder = pool.spawn(['sh', '-c', script, pool.path('v/t0.sif')]);
    await new Promise((resolve) => holder.stdout.once('data', resolve));
    return {
      finish: async () => {
        holder.stdin.end('read\n');
        t.is((await holder).stdout, `open\n${files[0]?.sha256}  -`);
      },
    };
  };
  return { pool, daemon: pid, hold };
}

/** Programs that wait for the image that never arrives. */
async function waitingOpens(pool: MountedPool, count: number): Promise<Promise<string>[]> {
  const programs = Array.from({ length: count }, () => pool.run('cat', [pool.path('v/t1.sif')]));
  await eventually('all wait', async () => (await pool.status()).kernel.waitingOpens === count || undefined);
  return programs.map(async (program) => (await program).stderr);
}

async function leavesNothing(t: ExecutionContext, { pool, daemon }: Ending, byForce = false): Promise<void> {
  await eventually('the process has ended', () => hasEnded(daemon) || undefined);
  t.is(topMountAt(pool.mountpoint), undefined);
  t.is((await execa('find', [pool.folder, '-name', '*.sock'])).stdout, '', 'no socket');
  const [blob = ''] = (await execa('find', [join(pool.cacheDirectory, 'blobs'), '-type', 'f'])).stdout.split('\n');
  t.is((await pool.run('flock', ['--nonblock', '--exclusive', blob, 'true'])).exitCode, 0, 'no lease');
  if (!byForce) t.is(pool.log().at(-1)?.['msg'], 'the daemon ends');
  // Whoever comes next finds all as it should be.
  await pool.mount();
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
}

for (const [who, uid] of [
  ['root', undefined],
  ['an ordinary user', ORDINARY_UID],
] as const) {
  test.serial(`SIGTERM ends an idle daemon (${who})`, async (t) => {
    const mount = await ending(t, uid);
    process.kill(mount.daemon, 'SIGTERM');
    await leavesNothing(t, mount);
  });

  test.serial(`SIGTERM ends a daemon with an open file, which is read on (${who})`, async (t) => {
    const mount = await ending(t, uid);
    const holder = await mount.hold();
    process.kill(mount.daemon, 'SIGTERM');
    await eventually('the mount is gone', () => topMountAt(mount.pool.mountpoint) === undefined || undefined);
    await holder.finish();
    await leavesNothing(t, mount);
  });

  test.serial(`SIGTERM ends a daemon with opens that wait, and those opens (${who})`, async (t) => {
    const mount = await ending(t, uid);
    const opens = await waitingOpens(mount.pool, 20);
    process.kill(mount.daemon, 'SIGTERM');
    for (const stderr of await Promise.all(opens)) t.regex(stderr, /not connected/);
    await leavesNothing(t, mount);
  });

  test.serial(`an unmount by someone else ends the daemon (${who})`, async (t) => {
    const mount = await ending(t, uid);
    await execa('umount', [mount.pool.mountpoint]);
    await leavesNothing(t, mount);
  });

  test.serial(`a lazy unmount by someone else ends the daemon once the last file is closed (${who})`, async (t) => {
    const mount = await ending(t, uid);
    const holder = await mount.hold();
    await execa('umount', ['-l', mount.pool.mountpoint]);
    await holder.finish();
    await leavesNothing(t, mount);
  });

  test.serial(`an aborted connection ends the daemon, with files open and opens waiting (${who})`, async (t) => {
    const mount = await ending(t, uid);
    const holder = mount.pool.spawn(['sh', '-c', 'exec 3<"$0"; echo open; read line', mount.pool.path('v/t0.sif')]);
    await new Promise((resolve) => holder.stdout.once('data', resolve));
    const opens = await waitingOpens(mount.pool, 5);
    await abort(t, mount.pool);
    for (const stderr of await Promise.all(opens)) t.true(stderr.length > 0);
    holder.stdin.end();
    await leavesNothing(t, mount);
  });

  test.serial(`SIGTERM ends a daemon whose mount another mount namespace keeps (${who})`, async (t) => {
    const mount = await ending(t, uid);
    const container = execa('unshare', ['--mount', '--propagation', 'private', 'sh', '-c', 'echo ready; read line'], {
      reject: false,
    });
    t.teardown(async () => {
      container.kill('SIGKILL');
      await container;
    });
    await new Promise((resolve) => container.stdout.once('data', resolve));
    process.kill(mount.daemon, 'SIGTERM');
    // An ordinary user can't end the connection where nobody has mounted the control file system: the process ends by force.
    await leavesNothing(t, mount, true);
  });
}

test.serial('SIGTERM ends a daemon whose driver is fuse-native', async (t) => {
  const mount = await ending(t, undefined, ['--driver', 'fuse-native']);
  process.kill(mount.daemon, 'SIGTERM');
  await leavesNothing(t, mount);
});

/** Through the control file system of FUSE, mounted for this test. */
async function abort(t: ExecutionContext, pool: MountedPool): Promise<void> {
  const connections = temporaryFolder(t);
  await execa('mount', ['-t', 'fusectl', 'fusectl', connections]);
  try {
    await writeFile(join(connections, topMountAt(pool.mountpoint)?.device.split(':')[1] ?? '', 'abort'), '1');
  } finally {
    await execa('umount', [connections]);
  }
}
