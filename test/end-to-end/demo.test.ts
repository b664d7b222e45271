/** The demo cleans up after itself, however it ends; and commands whose reader goes away end quietly. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { tmaxfsMounts } from '../../src/fuse/mount-table.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { packagePath } from '../support/paths.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const EXECUTABLE = packagePath('bin', 'tmaxfs.js');

function demo(folder: string) {
  return execa(process.execPath, [EXECUTABLE, 'demo'], { env: { TMPDIR: folder }, reject: false, timeout: 90_000 });
}

async function leavesNothing(t: ExecutionContext, folder: string): Promise<void> {
  t.deepEqual(readdirSync(folder), []);
  t.false(tmaxfsMounts().some(({ mountpoint }) => mountpoint.startsWith(folder)));
  await eventually('its daemon has ended', () => {
    const lines = readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(commandLine);
    return !lines.some((line) => line.includes(folder)) || undefined;
  });
}

function commandLine(pid: string): string {
  try {
    return readFileSync(join('/proc', pid, 'cmdline'), 'utf8');
  } catch {
    return '';
  }
}

test.serial('the demo shows a refusal, an interrupted fetch and the coverage, and leaves nothing behind', async (t) => {
  const folder = temporaryFolder(t);
  const { exitCode, stdout, stderr } = await demo(folder);
  t.is(exitCode, 0, stderr);
  t.regex(stdout, /refused with EBADMSG/);
  t.regex(stdout, /^refused: | {2}refused: /m);
  t.true(stdout.includes(`"." stands for ${folder}/tmaxfs-demo-`));
  await leavesNothing(t, folder);
});

for (const [signal, when] of [
  ['SIGINT', /^1\. Mount it/m],
  ['SIGTERM', /^3\. Open/m],
  ['SIGHUP', /^2\. Look/m],
] as const) {
  test.serial(`${signal} ends the demo, which leaves nothing behind`, async (t) => {
    const folder = temporaryFolder(t);
    const running = demo(folder);
    let stdout = '';
    running.stdout.on('data', (chunk) => {
      stdout += chunk;
      if (when.test(stdout)) running.kill(signal);
    });
    const { exitCode, stderr } = await running;
    t.is(exitCode, 1);
    t.is(stderr, `tmaxfs: ${signal}: nothing is left behind`);
    await leavesNothing(t, folder);
  });
}

test.serial('a demo whose reader goes away leaves nothing behind, and says nothing', async (t) => {
  const folder = temporaryFolder(t);
  const command = `"${process.execPath}" "${EXECUTABLE}" demo 2>"${folder}.err" | head -8`;
  t.teardown(() => execa('rm', ['-f', `${folder}.err`]));
  await execa('bash', ['-o', 'pipefail', '-c', command], { env: { TMPDIR: folder }, reject: false, timeout: 90_000 });
  t.is(readFileSync(`${folder}.err`, 'utf8'), '');
  await leavesNothing(t, folder);
});

test.serial('a closed pipe ends a command quietly; a full disk is one line and exit code 1', async (t) => {
  const pool = await MountedPool.start(t, smallPool(3));
  for (const words of [['status'], ['status', '--json'], ['coverage'], ['coverage', '--json']]) {
    const command = [process.execPath, EXECUTABLE, ...words, pool.mountpoint].map((word) => `'${word}'`).join(' ');
    const closed = await pool.run('bash', ['-c', `${command} | true`]);
    t.is(closed.stderr, '', words.join(' '));
    const full = await pool.run('bash', ['-c', `${command} > /dev/full`]);
    t.is(full.exitCode, 1);
    t.is(full.stderr, "tmaxfs: the output can't be written: ENOSPC: no space left on device, write");
  }
});
