/** What can be said of mount points without a server of ours. */

import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import { pino } from 'pino';
import { TmaxError } from '../../src/errors.js';
import { describeHolders, findHolders } from '../../src/fuse/holders.js';
import { topMountAt } from '../../src/fuse/mount-table.js';
import { prepareMountpoint } from '../../src/fuse/mounts.js';
import { unmount } from '../../src/fuse/unmount.js';
import { temporaryDirectory } from '../support/mount-client.js';
import { RunningPython } from '../support/mount-user.js';

const log = pino({ level: 'silent' });

test('an empty directory can be mounted on', async (t) => {
  const { mountpoint } = await temporaryDirectory(t.teardown);
  await t.notThrowsAsync(prepareMountpoint(mountpoint, log));
});

test('a mount point that is not there is refused with the command that makes it', async (t) => {
  const { directory } = await temporaryDirectory(t.teardown);
  const missing = join(directory, 'missing');
  const error = await t.throwsAsync(prepareMountpoint(missing, log), { instanceOf: TmaxError });
  t.is(error.errno, 'ENOENT');
  t.true(error.message.includes(`mkdir -p ${missing}`));
});

test('a file is refused as a mount point', async (t) => {
  const { directory } = await temporaryDirectory(t.teardown);
  const file = join(directory, 'file');
  await writeFile(file, '');
  const error = await t.throwsAsync(prepareMountpoint(file, log), { instanceOf: TmaxError });
  t.is(error.errno, 'ENOTDIR');
});

test('a directory with something in it is refused', async (t) => {
  const { mountpoint } = await temporaryDirectory(t.teardown);
  await mkdir(join(mountpoint, 'x'));
  const error = await t.throwsAsync(prepareMountpoint(mountpoint, log), { instanceOf: TmaxError });
  t.is(error.errno, 'EEXIST');
});

test('a mount of another kind is refused and left alone', async (t) => {
  const { mountpoint } = await temporaryDirectory(t.teardown);
  await execa('mount', ['-t', 'tmpfs', 'tmax-test', mountpoint]);
  const error = await t.throwsAsync(prepareMountpoint(mountpoint, log), { instanceOf: TmaxError });
  t.is(error.errno, 'EBUSY');
  t.true(error.message.includes('tmpfs (tmax-test)'));
  t.is(topMountAt(mountpoint)?.type, 'tmpfs');
});

test('unmounting names who works in the mount, who has a file open and who has one mapped', async (t) => {
  const { mountpoint } = await temporaryDirectory(t.teardown);
  await execa('mount', ['-t', 'tmpfs', 'tmax-test', mountpoint]);
  await writeFile(join(mountpoint, 'open'), 'x');
  await writeFile(join(mountpoint, 'mapped'), 'x');
  const scripts = [
    "os.chdir(args[0]); out('ready'); sys.stdin.readline()",
    "fd = os.open(args[0] + '/open', os.O_RDONLY); out('ready'); sys.stdin.readline()",
    `
import mmap
fd = os.open(args[0] + '/mapped', os.O_RDONLY)
memory = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
os.close(fd)
out('ready')
sys.stdin.readline()`,
  ];
  const programs = scripts.map((script) => new RunningPython(t.teardown, 'root', script, mountpoint));
  for (const program of programs) t.is(await program.report(), 'ready');
  const error = await t.throwsAsync(unmount(mountpoint, { lazy: false }), { instanceOf: TmaxError });
  t.is(error.errno, 'EBUSY');
  for (const { pid } of programs) t.true(error.message.includes(`${pid} (python3)`), error.message);
  t.true(error.message.includes('working directory'));
  await unmount(mountpoint, { lazy: true });
  t.is(topMountAt(mountpoint), undefined);
});

test('unmounting where nothing is mounted says so', async (t) => {
  const { mountpoint } = await temporaryDirectory(t.teardown);
  const error = await t.throwsAsync(unmount(mountpoint, { lazy: false }), { instanceOf: TmaxError });
  t.is(error.errno, 'EINVAL');
  t.true(error.message.includes(`nothing is mounted on ${mountpoint}`));
});

test('a directory that nobody uses has no holders', async (t) => {
  const { mountpoint } = await temporaryDirectory(t.teardown);
  t.deepEqual(await findHolders(mountpoint), []);
});

test('holders are described by process, program and what they hold', (t) => {
  const holders = [
    { pid: 1, command: 'init', holds: 'working directory' },
    { pid: 2, command: 'cat', holds: '/mnt/a.sif' },
  ];
  t.is(describeHolders(holders), '1 (init): working directory, 2 (cat): /mnt/a.sif');
});
