/** What the commands say and how they end, on a real mount: to root, to its user, and to others. */

import { existsSync, readdirSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { topMountAt } from '../../src/fuse/mount-table.js';
import { type CommandResult, resultOf } from '../support/command.js';
import { eventually, ORDINARY_UID } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

/** The command, as another user than the one who mounted. */
function tmaxfsAs(uid: number, pool: MountedPool, args: readonly string[], gid = uid): Promise<CommandResult> {
  const options = { uid, gid, reject: false, timeout: 60_000 } as const;
  return resultOf(execa(process.execPath, [...pool.executable, ...args], options));
}

async function socketOf(pool: MountedPool): Promise<string> {
  return (await pool.run('getfattr', ['--only-values', '-n', 'user.tmaxfs.control', pool.mountpoint])).stdout;
}

/** The process of a program that waits for an image that never arrives. */
async function waitingOpen(t: ExecutionContext, pool: MountedPool): Promise<number | undefined> {
  pool.hub.fault({ path: 'images/0.sif', fault: { kind: 'stall' }, requests: 'every' });
  const program = pool.spawn(['cat', pool.path('v/t0.sif')]);
  t.teardown(async () => {
    program.kill('SIGKILL');
    await program;
  });
  await eventually('it waits', async () => (await pool.status()).opens.waiting.length === 1 || undefined);
  return program.pid;
}

test.serial('who did not mount can look, and can neither unmount nor command', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  for (const command of ['status', 'coverage']) {
    const { exitCode, stderr } = await tmaxfsAs(ORDINARY_UID, pool, [command, pool.mountpoint]);
    t.is(exitCode, 0, stderr);
  }
  for (const [command = '', ...words] of [
    ['reload'],
    ['prefetch', '--variant', 'v'],
    ['pin', 'v'],
    ['unpin', 'v'],
    ['evict', 'v'],
  ]) {
    const { exitCode, stderr } = await tmaxfsAs(ORDINARY_UID, pool, [command, pool.mountpoint, ...words]);
    t.is(exitCode, 1);
    t.regex(stderr, /obeys only root and who mounted it; ask as that user \(sudo -u '#0' tmaxfs/);
  }
  for (const lazy of [[], ['--lazy']]) {
    const { exitCode, stderr } = await tmaxfsAs(ORDINARY_UID, pool, ['unmount', pool.mountpoint, ...lazy]);
    t.is(exitCode, 1);
    t.is(stderr, `tmaxfs: only root or who mounted it can unmount ${pool.mountpoint}`);
  }
  t.is((await pool.tmaxfs(['status', pool.mountpoint])).exitCode, 0);
});

test.serial('members of the control group find the socket by the mount alone, and give orders', async (t) => {
  const group = 4242;
  const pool = await MountedPool.start(t, { ...smallPool(1), args: ['--control-group', String(group)] });
  const { mode, gid } = statSync(await socketOf(pool));
  t.is(mode & 0o777, 0o660);
  t.is(gid, group);
  for (const words of [['reload'], ['prefetch', '--variant', 'v']]) {
    const member = await tmaxfsAs(ORDINARY_UID, pool, [...words, pool.mountpoint], group);
    t.is(member.exitCode, 0, member.stderr);
    const other = await tmaxfsAs(ORDINARY_UID, pool, [...words, pool.mountpoint]);
    t.is(other.exitCode, 1);
    t.regex(other.stderr, /obeys only root, members of group 4242 and who mounted it/);
  }
  t.is((await tmaxfsAs(ORDINARY_UID, pool, ['status', pool.mountpoint])).exitCode, 0, 'all others still look');
});

test.serial('a control group may be named, and one that is not there is said', async (t) => {
  const pool = await MountedPool.start(t, { ...smallPool(1), env: { TMAXFS_CONTROL_GROUP: 'nogroup' } });
  t.is(statSync(await socketOf(pool)).gid, 65534);
  const wrong = await MountedPool.prepare(t, { ...smallPool(1), args: ['--control-group', 'no-such-group'] });
  const { exitCode, stderr } = await wrong.tryMount();
  t.is(exitCode, 1);
  t.regex(stderr, /--control-group: there is no group "no-such-group"/);
  const alone = await MountedPool.prepare(t, { ...smallPool(1), args: ['--control-group', '1', '--no-allow-other'] });
  t.like(await alone.tryMount(), { exitCode: 2 });
});

test.serial('where others are kept out, even root is told as whom to ask', async (t) => {
  const pool = await MountedPool.start(t, { ...smallPool(1), uid: ORDINARY_UID });
  for (const command of ['status', 'coverage', 'reload']) {
    const { exitCode, stderr } = await tmaxfsAs(0, pool, [command, pool.mountpoint]);
    t.is(exitCode, 1);
    t.true(stderr.includes(`did not allow others in; ask as that user (sudo -u '#${ORDINARY_UID}' tmaxfs`), stderr);
  }
  const rootsOwn = await MountedPool.start(t, { ...smallPool(1), args: ['--no-allow-other'] });
  t.regex((await tmaxfsAs(ORDINARY_UID, rootsOwn, ['status', rootsOwn.mountpoint])).stderr, /sudo -u '#0'/);
});

for (const [who, uid] of [
  ['root', undefined],
  ['an ordinary user', ORDINARY_UID],
] as const) {
  test.serial(`unmount names who waits in an open, and what for (${who})`, async (t) => {
    const pool = await MountedPool.start(t, { ...smallPool(1), ...(uid === undefined ? {} : { uid }) });
    const pid = await waitingOpen(t, pool);
    const { exitCode, stderr } = await pool.tmaxfs(['unmount', pool.mountpoint]);
    t.is(exitCode, 1);
    t.true(stderr.includes(`is in use by ${pid} (cat): waiting for v/t0.sif`), stderr);
    t.notRegex(stderr, /EBUSY|umount2|fusermount/);
  });
}

test.serial('unmount says so where the daemon goes on', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const { pid } = await pool.status();
  const holder = pool.spawn(['sh', '-c', 'exec 3<"$0"; echo open; read line', pool.path('v/t0.sif')]);
  await new Promise((resolve) => holder.stdout.once('data', resolve));
  const { exitCode, stdout } = await pool.tmaxfs(['unmount', pool.mountpoint, '--lazy']);
  t.is(exitCode, 0);
  t.is(stdout, `detached; the daemon (pid ${pid}) goes on until what is open there is closed`);
  holder.stdin.end('\n');
  await eventually('the process has ended', () => !existsSync(`/proc/${pid}`) || undefined);
});

test.serial('unmount says so where a container keeps the mount, and how to end the daemon', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const { pid } = await pool.status();
  const container = pool.spawn(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', 'echo ready; read line']);
  await new Promise((resolve) => container.stdout.once('data', resolve));
  const { exitCode, stdout } = await pool.tmaxfs(['unmount', pool.mountpoint]);
  t.is(exitCode, 0);
  t.regex(
    stdout,
    new RegExp(`^detached; the daemon \\(pid ${pid}\\) goes on while a container .* "kill ${pid}" ends it`),
  );
  process.kill(pid, 'SIGTERM');
  await eventually('the process has ended', () => !existsSync(`/proc/${pid}`) || undefined);
  container.stdin.end('\n');
});

test.serial('an unmount of a dead mount says what it found, and nothing that contradicts it', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const { pid } = await pool.status();
  process.kill(pid, 'SIGKILL');
  await eventually('the process has ended', () => !existsSync(`/proc/${pid}`) || undefined);
  const asked = await pool.tmaxfs(['status', pool.mountpoint]);
  t.is(asked.exitCode, 1);
  t.true(asked.stderr.startsWith(`tmaxfs: the daemon of ${pool.mountpoint} has ended without unmounting; `));
  t.true(asked.stderr.includes(`"tmaxfs unmount --dead ${pool.mountpoint}"`));
  const { exitCode, stderr } = await pool.tmaxfs(['unmount', pool.mountpoint]);
  t.is(exitCode, 0);
  t.is(stderr, `tmaxfs: no daemon answers behind ${pool.mountpoint}: unmounting all the same`);
  t.is(topMountAt(pool.mountpoint), undefined);
});

test.serial('idle connections keep nobody from an answer for long', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const path = await socketOf(pool);
  const idle = Array.from({ length: 200 }, () => connect(path).on('error', () => undefined));
  t.teardown(() => {
    for (const socket of idle) socket.destroy();
  });
  const startedAtMs = performance.now();
  const { exitCode, stderr } = await pool.tmaxfs(['status', pool.mountpoint]);
  t.is(exitCode, 0, stderr);
  t.true(performance.now() - startedAtMs < 8000);
});

test.serial('of several that mount on one mount point at once, one does, and the others say why not', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  for (const round of [1, 2, 3]) {
    const results = await Promise.all([1, 2, 3, 4].map(() => pool.tryMount()));
    const refused = results.filter(({ exitCode }) => exitCode !== 0);
    t.is(refused.length, 3, `round ${round}`);
    for (const { stderr } of refused) t.regex(stderr, /is being mounted on|is already served/);
    const { stdout } = await execa('grep', ['-c', ` ${pool.mountpoint} `, '/proc/self/mountinfo']);
    t.is(stdout, '1');
    t.is((await pool.tmaxfs(['unmount', pool.mountpoint])).exitCode, 0);
  }
});

test.serial('a daemon that ends late leaves its successor its sockets', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const first = (await pool.status()).pid;
  const holder = pool.spawn(['sh', '-c', 'exec 3<"$0"; echo open; read line', pool.path('v/t0.sif')]);
  await new Promise((resolve) => holder.stdout.once('data', resolve));
  await pool.tmaxfs(['unmount', pool.mountpoint, '--lazy']);
  await pool.mount();
  const second = (await pool.status()).pid;
  t.not(second, first);
  holder.stdin.end('\n');
  await eventually('the first has ended', () => !existsSync(`/proc/${first}`) || undefined);
  t.is((await pool.status()).pid, second);
});

test.serial('a user’s daemon leaves nothing in the runtime folder, and takes away what killed ones left', async (t) => {
  const pool = await MountedPool.start(t, { ...smallPool(1), uid: ORDINARY_UID });
  const runtime = join(pool.folder, 'tmaxfs');
  const { pid } = await pool.status();
  process.kill(pid, 'SIGKILL');
  await eventually('the process has ended', () => !existsSync(`/proc/${pid}`) || undefined);
  const [left = ''] = readdirSync(join(runtime, 'private'));
  await execa('touch', ['--date', '1 minute ago', join(runtime, 'private', left)]);
  await pool.mount();
  t.is(readdirSync(join(runtime, 'private')).length, 1);
  t.false(existsSync(join(runtime, 'private', left)));
  t.is((await pool.tmaxfs(['unmount', pool.mountpoint])).exitCode, 0);
  t.false(existsSync(runtime));
});

test.serial('a twin that says no keeps others out, as its flag does', async (t) => {
  for (const env of [{ TMAXFS_ALLOW_OTHER: '0' }, { TMAXFS_NO_ALLOW_OTHER: 'yes' }]) {
    const pool = await MountedPool.start(t, { ...smallPool(1), env });
    t.false(topMountAt(pool.mountpoint)?.superOptions.includes('allow_other'));
  }
  const env = { TMAXFS_ALLOW_OTHER: '0' };
  const pool = await MountedPool.start(t, { ...smallPool(1), env, args: ['--allow-other'] });
  t.true(topMountAt(pool.mountpoint)?.superOptions.includes('allow_other'));
});

test.serial('no secret of the environment is in the log', async (t) => {
  const env = { HTTP_PROXY: 'user:SECRET@host:1', HTTPS_PROXY: 'http://user:SECRET@host:3128', NO_PROXY: '*' };
  const pool = await MountedPool.start(t, {
    ...smallPool(1),
    env: { ...env, HF_TOKEN: 'hf_SECRET' },
    readers: ['hf_SECRET'],
  });
  const lines = await pool.logged(() => true);
  t.false(JSON.stringify(lines).includes('SECRET'));
  t.like(lines[0], {
    settings: {
      proxy: {
        httpProxy: 'set, but no address that can be read',
        httpsProxy: 'http://host:3128',
        noProxy: '*',
      },
    },
  });
});

test.serial(
  'status names the tasks, each reason once, what a fetch goes through, and several mounts in a line each',
  async (t) => {
    const pool = await MountedPool.start(t, smallPool(3));
    pool.hub.fault({
      server: 'cdn',
      path: 'images/0.sif',
      fault: { kind: 'corrupt', atByte: 100_000 },
      requests: 'every',
    });
    await pool.run('cat', [pool.path('v/t0.sif')]);
    pool.hub.fault({ server: 'hub', path: 'images/1.sif', fault: { kind: 'status', status: 403 }, requests: 'every' });
    await pool.run('cat', [pool.path('v/t1.sif')]);
    pool.hub.fault({ server: 'cdn', path: 'images/2.sif', fault: { kind: 'status', status: 503 }, requests: 'every' });
    const waiting = pool.spawn(['cat', pool.path('v/t2.sif')]);
    await eventually(
      'it has failed once',
      async () => ((await pool.status()).fetches.running[0]?.faults ?? 0) > 0 || undefined,
    );
    const { stdout } = await pool.tmaxfs(['status', pool.mountpoint]);
    waiting.kill('SIGKILL');
    await waiting;
    t.regex(stdout, /^ {4}v\/t0: images\/0\.sif from hub: sha256-mismatch: /m);
    t.regex(stdout, /^ {4}do: it is tried anew at the next open after half a minute; /m);
    t.is(stdout.split('what arrived has the sha256').length, 2, 'the reason is there once');
    t.regex(stdout, /^ {4}\S+ v\/t1: .*EACCES: /m);
    t.is(/^ {4}\S+ v\/t1: .*$/m.exec(stdout)?.[0].split('images/1.sif').length, 2, 'the path is there once');
    t.regex(stdout, /^ {4}v\/t2 {2}fetching .*; attempt \d+, after: .*503/m);

    const second = await MountedPool.start(t, smallPool(1));
    const all = await pool.tmaxfs(['status']);
    t.is(all.exitCode, 0);
    for (const { mountpoint } of [pool, second])
      t.true(all.stdout.includes(`${mountpoint}  test-org/test-pool@main (`));
  },
);
