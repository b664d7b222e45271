/** A start that takes long, is called off or fails: said while it lasts, and nothing left behind. */

import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import { topMountAt } from '../../src/fuse/mount-table.js';
import { eventually, ORDINARY_UID } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

/** Processes of `tmaxfs mount` on this mount point. */
function processesOf(pool: MountedPool): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && commandLine(pid).includes(`mount\0`) && commandLine(pid).includes(pool.mountpoint));
}

function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

/** The Hub does not answer what a start asks first. */
function stallHub(pool: MountedPool): void {
  pool.hub.fault({ server: 'hub', fault: { kind: 'stall' }, requests: 'every' });
}

/** Lines of what a start has said, but for what it says while it lasts, as it may on a busy machine. */
function reasonsIn(stderr: string): string[] {
  return stderr.split('\n').filter((line) => !line.startsWith('tmaxfs: still trying: '));
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGKILL'] as const) {
  test.serial(`${signal} of a mount that still waits leaves neither a daemon nor a mount`, async (t) => {
    const pool = await MountedPool.prepare(t, smallPool(1));
    stallHub(pool);
    const starter = pool.spawn([process.execPath, ...pool.executable, ...pool.mountCommand]);
    await pool.hub.requests.waitFor(() => true);
    t.is(processesOf(pool).length, 2);
    starter.kill(signal);
    const { exitCode, stderr } = await starter;
    if (signal !== 'SIGKILL') {
      t.is(exitCode, 1);
      t.regex(String(stderr), new RegExp(`called off \\(${signal}\\): nothing is mounted`));
    }
    await eventually('both have ended', () => processesOf(pool).length === 0 || undefined);
    t.is(topMountAt(pool.mountpoint), undefined);
  });
}

test.serial('SIGTERM of a foreground daemon that still waits ends it, having done as it was told', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  stallHub(pool);
  const daemon = pool.spawn([process.execPath, ...pool.executable, ...pool.mountCommand, '--foreground']);
  await pool.hub.requests.waitFor(() => true);
  daemon.kill('SIGTERM');
  t.is((await daemon).exitCode, 0);
  t.is(topMountAt(pool.mountpoint), undefined);
});

test.serial('a mount that waits says for what, while it does', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  pool.hub.fault({ server: 'hub', fault: { kind: 'status', status: 503 }, requests: 'every' });
  const starter = pool.spawn([process.execPath, ...pool.executable, ...pool.mountCommand]);
  let stderr = '';
  starter.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  await eventually('it says why', () => stderr.includes('503') || undefined);
  t.regex(stderr, /^tmaxfs: still trying: asking again: .*503/m);
  starter.kill('SIGTERM');
  await starter;
});

test.serial(
  'a start that fails for want of fusermount3 says so at once, in one line, with nothing of Node’s',
  async (t) => {
    const pool = await MountedPool.prepare(t, { ...smallPool(1), uid: ORDINARY_UID });
    await execa('ln', ['-s', process.execPath, join(pool.folder, 'node')]);
    const startedAtMs = performance.now();
    const command = [process.execPath, ...pool.executable, ...pool.mountCommand];
    const { exitCode, stderr } = await pool.spawn(['env', `PATH=${pool.folder}`, ...command]);
    t.is(exitCode, 1);
    t.deepEqual(reasonsIn(String(stderr)), [
      `tmaxfs: neither fusermount3 nor fusermount is on the PATH, and only they (or root) can mount; install the package fuse3 (log: ${pool.logFile})`,
    ]);
    // Not only after the minutes in which it would ask again.
    t.true(performance.now() - startedAtMs < 30_000);
    t.deepEqual(pool.log().filter(({ level }) => level === 'fatal').length, 1);
    t.false(existsSync(join(pool.folder, 'tmaxfs')), 'no runtime folder');
  },
);

test.serial('a mount point that is refused leaves no log file', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const log = join(pool.folder, 'logs', 'second');
  for (const mountpoint of [pool.mountpoint, join(pool.folder, 'mistyped')]) {
    for (const foreground of [[], ['--foreground']]) {
      const { exitCode, stderr } = await pool.tmaxfs(['mount', mountpoint, '--log-file', log, ...foreground]);
      t.is(exitCode, 1);
      t.is(reasonsIn(stderr).length, 1, stderr);
      t.false(existsSync(dirname(log)));
    }
  }
});

test.serial('without the network, a known commit is shown, and everybody is told that it may be old', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  t.is((await pool.status()).follow.failure, null);
  await pool.tmaxfs(['unmount', pool.mountpoint]);
  pool.hub.fault({ server: 'hub', fault: { kind: 'status', status: 503 }, requests: 'every' });
  const mounted = await pool.tryMount();
  t.is(mounted.exitCode, 0);
  t.regex(
    mounted.stdout,
    /^warning: what main stands for now can't be had, shown is the last known commit, of \d{4}-\d\d-\d\d \(EHOSTUNREACH: .*503/m,
  );
  const status = await pool.status();
  t.is(status.follow.failure?.errno, 'EHOSTUNREACH');
  t.regex(String(status.follow.failure?.message), /503/);
  t.regex(status.commitDate, /^\d{4}-\d\d-\d\dT/);
  t.regex((await pool.tmaxfs(['status', pool.mountpoint])).stdout, /NOT renewed .* EHOSTUNREACH: .*503/);
});

test.serial('the words of mount may hold a "--", and its log file is where status says', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  const [command = '', mountpoint = '', ...options] = pool.mountCommand;
  t.is((await pool.tmaxfs([command, ...options, '--', mountpoint])).exitCode, 0);
  t.is((await pool.status()).logFile, pool.logFile);
  t.true((await pool.tmaxfs(['status', pool.mountpoint])).stdout.includes(`log       ${pool.logFile}`));
  const { stdout } = await execa('stat', ['--format', '%a', pool.logFile]);
  t.is(stdout, '640');
  rmSync(pool.logFile);
});

test.serial('a daemon in the background leaves the session of who started it', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const { pid } = await pool.status();
  const { stdout } = await execa('ps', ['-o', 'pgid=,sid=', '-p', String(pid)]);
  t.deepEqual(stdout.trim().split(/\s+/), [String(pid), String(pid)]);
});

test.serial('a cache that most images can never fit into is warned of', async (t) => {
  const pool = await MountedPool.prepare(t, { ...smallPool(2), args: ['--cache-size', '1K'] });
  const { exitCode, stdout } = await pool.tryMount();
  t.is(exitCode, 0);
  t.regex(stdout, /^warning: 2 of 2 images can't be opened: .*--cache-size, 1\.0 KiB.*the largest has \d/m);
  t.is((await pool.logged(({ msg }) => /can't be opened/.test(String(msg)))).length, 1);
});

test.serial('on a terminal each event is one line of words, without the whole of the settings', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  const words = pool.mountCommand.filter(
    (word) => !word.startsWith('--log') && ![pool.logFile, 'debug'].includes(word),
  );
  const command = [process.execPath, ...pool.executable, ...words, '--foreground'].map((word) => `'${word}'`).join(' ');
  const terminal = pool.spawn(['script', '--quiet', '--return', '--command', command, '/dev/null']);
  await eventually('it is mounted', () => existsSync(pool.path('v')) || undefined);
  t.is((await pool.tmaxfs(['unmount', pool.mountpoint])).exitCode, 0);
  const { stdout } = await terminal;
  const lines = String(stdout)
    .replaceAll(/\u001b\[\d+m/g, '')
    .trim()
    .split(/\r?\n/);
  t.true(
    lines.every((line) => /^\[\d\d:\d\d:\d\d\] [A-Z]+: /.test(line)),
    String(stdout),
  );
  t.is(lines.filter((line) => /mounted: the tree is readable/.test(line)).length, 1);
  t.false(lines.some((line) => line.includes('openTimeoutMs')));
});
