/** What must not end a daemon, and how it ends where it must: never with its callers stuck. */

import { once } from 'node:events';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { hasEnded } from '../support/processes.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

/** A tiny file system of its own, taken away with the test. */
async function smallDisk(t: ExecutionContext): Promise<string> {
  const folder = temporaryFolder(t);
  await execa('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder]);
  t.teardown(() => execa('umount', ['--lazy', folder]));
  return folder;
}

async function controlSocket(pool: MountedPool): Promise<string> {
  const { stdout } = await pool.run('getfattr', ['--only-values', '-n', 'user.tmaxfs.control', pool.mountpoint]);
  return stdout;
}

test.serial('a full log disk does not end the daemon, which logs again once there is room', async (t) => {
  const disk = await smallDisk(t);
  const { files, tasks } = smallPool(2);
  const pool = await MountedPool.start(t, { files, tasks, args: ['--log-file', join(disk, 'log')] });
  const filler = join(disk, 'filler');
  await execa('dd', ['if=/dev/zero', `of=${filler}`, 'bs=1k'], { reject: false });
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
  t.is((await pool.tmaxfs(['status', pool.mountpoint])).exitCode, 0);
  await execa('rm', [filler]);
  await eventually('it logs again', async () => {
    await pool.tmaxfs(['reload', pool.mountpoint]);
    process.kill((await pool.status()).pid, 'SIGHUP');
    const { stdout } = await execa('grep', ['-c', 'newer commit', join(disk, 'log')], { reject: false });
    return Number(stdout) > 0 || undefined;
  });
  t.is((await pool.run('cat', [pool.path('v/t1.sif')])).exitCode, 0);
});

test.serial('a foreground daemon outlives a full disk behind its standard error', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.prepare(t, { files, tasks });
  const words = pool.mountCommand.filter((word) => !word.startsWith('--log-file') && word !== pool.logFile);
  const daemon = pool.spawn([
    'sh',
    '-c',
    'exec "$0" "$@" 2>/dev/full >/dev/full',
    process.execPath,
    ...pool.executable,
    ...words,
    '--foreground',
  ]);
  await eventually('it is mounted', () => existsSync(pool.path('v')) || undefined);
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
  t.is((await pool.tmaxfs(['unmount', pool.mountpoint])).exitCode, 0);
  t.is((await daemon).exitCode, 0);
});

test.serial('a malformed request on the control socket is answered, and harms nobody', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.start(t, { files, tasks });
  const socketPath = await controlSocket(pool);
  for (const path of ['//', '*', '/%', '/status?%', '//[', '/__proto__']) {
    const [response] = await once(request({ socketPath, path }).end(), 'response');
    response.resume();
    t.is(response.statusCode, path === '/status?%' ? 200 : 404, path);
  }
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
});

test.serial(
  'what nobody has foreseen ends the daemon at once, and its callers, with the reason in the log',
  async (t) => {
    const { files, tasks } = smallPool(1);
    const folder = temporaryFolder(t);
    const hook = join(folder, 'hook.cjs');
    writeFileSync(
      hook,
      `if (require('node:worker_threads').isMainThread) process.on('SIGUSR2', () => { throw new Error('thrown on purpose'); });`,
    );
    const pool = await MountedPool.start(t, { files, tasks, env: { NODE_OPTIONS: `--require ${hook}` } });
    pool.hub.fault({ path: 'images/0.sif', fault: { kind: 'stall' }, requests: 'every' });
    const { pid } = await pool.status();
    const waiting = pool.run('cat', [pool.path('v/t0.sif')]);
    await eventually('it waits', async () => (await pool.status()).kernel.waitingOpens === 1 || undefined);
    process.kill(pid, 'SIGUSR2');
    t.not((await waiting).exitCode, 0);
    await eventually('the process has ended', () => hasEnded(pid) || undefined);
    const fatal = pool.log().filter(({ level }) => level === 'fatal');
    t.is(fatal.length, 1);
    t.is(fatal[0]?.['reason'], 'thrown on purpose');
    await pool.mount();
    t.is((await pool.status()).pid === pid, false);
  },
);

test.serial('no command outlives its answer where the daemon hangs', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.start(t, { files, tasks });
  const { pid } = await pool.status();
  mkdirSync(join(pool.folder, 'empty'));
  await execa('ln', ['-s', pool.mountpoint, join(pool.folder, 'link')]);
  process.kill(pid, 'SIGSTOP');
  t.teardown(() => {
    try {
      process.kill(pid, 'SIGCONT');
    } catch {
      // It has ended.
    }
  });
  const commands = [
    ['status', pool.mountpoint],
    ['status', join(pool.folder, 'link')],
    ['coverage', pool.mountpoint],
    ['reload', pool.mountpoint],
    pool.mountCommand,
  ];
  const results = await Promise.all(commands.map(async (words) => ({ words, ...(await pool.tmaxfs(words)) })));
  for (const { words, exitCode, stderr } of results) {
    t.is(exitCode, 1, `${words.join(' ')}: ${stderr}`);
    t.regex(stderr, words[0] === 'mount' ? /already served/ : /did not answer within 10 s/);
  }
  const unmounted = await pool.tmaxfs(['unmount', pool.mountpoint, '--lazy']);
  t.is(unmounted.exitCode, 0, unmounted.stderr);
  process.kill(pid, 'SIGCONT');
  await eventually('the process has ended', () => hasEnded(pid) || undefined);
});
