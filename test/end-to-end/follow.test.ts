import { once } from 'node:events';
import test from 'ava';
import { execa } from 'execa';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool, POOL_NAME } from '../support/mounted-pool.js';
import { contentOf, smallPool } from '../support/small-pool.js';

const SECOND = '2'.repeat(40);
const THIRD = '3'.repeat(40);
const { files } = smallPool(3);
const [zero, one, two] = files as [FakeFile, FakeFile, FakeFile];
/** Before: `stays` and `goes`, and `changes` is image 1. After: `goes` has gone, `comes` has come, `changes` is image 2. */
const BEFORE = { v: { stays: zero.path, goes: one.path, changes: one.path } };
const AFTER = { v: { stays: zero.path, changes: two.path, comes: two.path } };

function push(pool: MountedPool, commit: string, map: FakeFile, images = [zero, two]): void {
  pool.hub.repository(POOL_NAME).push({ commit, date: new Date('2026-05-06T07:08:09Z'), files: [map, ...images] });
}

async function sha256Of(pool: MountedPool, task: string): Promise<string> {
  return (await pool.run('sha256sum', [pool.path(`v/${task}.sif`)])).stdout.slice(0, 64);
}

/** Opens a task, says so, and reads it, with its size by fstat, only when told to. */
function holdOpen(pool: MountedPool, task: string) {
  const program = `
    const fs = require('node:fs');
    const descriptor = fs.openSync(process.argv[1], 'r');
    console.log('open');
    process.stdin.once('data', () => {
      const again = fs.openSync('/proc/self/fd/' + descriptor, 'r');
      const { size } = fs.fstatSync(descriptor);
      process.stdout.write(size + ' ' + require('node:crypto').createHash('sha256').update(fs.readFileSync(again)).digest('hex'));
      process.exit();
    });`;
  return execa(process.execPath, ['-e', program, pool.path(`v/${task}.sif`)], { reject: false });
}

test.serial(
  'reload shows a new commit as a whole: names come, go and change; what is open stays what it was',
  async (t) => {
    const pool = await MountedPool.start(t, { files, tasks: BEFORE });
    const holder = holdOpen(pool, 'goes');
    await once(holder.stdout, 'data');
    t.is(await sha256Of(pool, 'changes'), one.sha256);
    push(pool, SECOND, taskMapFile(AFTER));

    const reloaded = await pool.tmaxfs(['reload', pool.mountpoint]);
    t.is(reloaded.exitCode, 0, reloaded.stderr);
    t.regex(reloaded.stdout, new RegExp(`now shows ${POOL_NAME}@${SECOND}`));
    t.regex((await pool.run('ls', [pool.path('v')])).stdout, /^changes\.sif\ncomes\.sif\nstays\.sif$/);
    await eventually('the kernel has forgotten what it knew', async () => {
      const gone = await pool.run('cat', [pool.path('v/goes.sif')]);
      return (/No such file/.test(gone.stderr) && (await sha256Of(pool, 'changes')) === two.sha256) || undefined;
    });
    t.is(await sha256Of(pool, 'comes'), two.sha256);
    t.is(await sha256Of(pool, 'stays'), zero.sha256);
    t.is((await pool.run('stat', ['-c', '%Y', pool.path('v/stays.sif')])).stdout, '1778051289');

    holder.stdin.end('go');
    t.is((await holder).stdout, `open\n${one.sizeBytes} ${one.sha256}`);
    const again = await pool.tmaxfs(['reload', pool.mountpoint]);
    t.regex(again.stdout, /still shows/);
  },
);

test.serial(
  'the name of an image that nobody holds open is gone for the next open, whatever the kernel remembers',
  async (t) => {
    const pool = await MountedPool.start(t, { files, tasks: { v: { stays: zero.path, goes: one.path } } });
    t.is(await sha256Of(pool, 'goes'), one.sha256);
    push(pool, SECOND, taskMapFile({ v: { stays: zero.path } }), [zero]);
    await pool.tmaxfs(['reload', pool.mountpoint]);
    t.regex((await pool.run('cat', [pool.path('v/goes.sif')])).stderr, /No such file/);
  },
);

for (const [what, map] of [
  ['is not JSON', fileOf('task_to_blob.json', Buffer.from('<html>'), { lfs: false })],
  ['names no variant', fileOf('task_to_blob.json', Buffer.from('{}'), { lfs: false })],
  ['is missing', fileOf('readme.md', Buffer.from('x'), { lfs: false })],
] as const) {
  test.serial(`a new commit whose task map ${what} never replaces a good one, and says so`, async (t) => {
    const pool = await MountedPool.start(t, { files, tasks: BEFORE });
    const { commit } = await pool.status();
    push(pool, SECOND, map);
    const { exitCode, stderr } = await pool.tmaxfs(['reload', pool.mountpoint]);
    t.is(exitCode, 1);
    t.regex(stderr, /task_to_blob\.json/);
    const status = await pool.status();
    t.is(status.commit, commit);
    t.regex(status.follow.failure?.message ?? '', /task_to_blob\.json/);
    t.regex((await pool.tmaxfs(['status', pool.mountpoint])).stdout, /catalog +NOT renewed at .*task_to_blob\.json/);
    t.truthy(await pool.logged(({ level, msg }) => level === 'error' && String(msg).includes('the present one stays')));
    t.is(await sha256Of(pool, 'goes'), one.sha256);

    await pool.tmaxfs(['unmount', pool.mountpoint]);
    await pool.mount();
    t.is((await pool.status()).commit, commit, 'nor does it after a restart');

    push(pool, THIRD, taskMapFile(AFTER));
    t.is((await pool.tmaxfs(['reload', pool.mountpoint])).exitCode, 0);
    t.is((await pool.status()).follow.failure, null);
  });
}

test.serial('SIGHUP looks at once, and a failure on the way changes nothing', async (t) => {
  const pool = await MountedPool.start(t, { files, tasks: BEFORE });
  const { pid, commit } = await pool.status();
  push(pool, SECOND, taskMapFile(AFTER));
  pool.hub.fault({ server: 'hub', path: /\/tree\//, fault: { kind: 'status', status: 403 }, requests: [1] });
  process.kill(pid, 'SIGHUP');
  await eventually('the failure is in status', async () => (await pool.status()).follow.failure !== null || undefined);
  t.is((await pool.status()).commit, commit);
  process.kill(pid, 'SIGHUP');
  await eventually('the new commit is shown', async () => (await pool.status()).commit === SECOND || undefined);
});

test.serial('with --follow it looks by itself', async (t) => {
  const pool = await MountedPool.start(t, { files, tasks: BEFORE, args: ['--follow', '200ms'] });
  push(pool, SECOND, taskMapFile(AFTER));
  await eventually('the new commit is shown', async () => (await pool.status()).commit === SECOND || undefined);
  t.is(await sha256Of(pool, 'comes'), two.sha256);
  const { follow } = await pool.status();
  t.is(follow.intervalSeconds, 0.2);
  t.true(contentOf(two).length === two.sizeBytes && follow.changedAt !== null);
});
