import { spawnSync } from 'node:child_process';
import { closeSync, fstatSync, mkdtempSync, openSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import anyTest, { type TestFn } from 'ava';
import { execa } from 'execa';
import {
  duplicateDescriptor,
  flock,
  getExtendedAttribute,
  ioctl,
  readExtendedAttribute,
  receiveDescriptor,
  SystemCallError,
  socketPair,
  unmount,
} from '../src/libc.js';

const test = anyTest as TestFn<{ directory: string; file: string }>;

test.beforeEach((t) => {
  const directory = mkdtempSync(join(tmpdir(), 'tmaxfs-libc-'));
  t.context = { directory, file: join(directory, 'file') };
  writeFileSync(t.context.file, 'content');
});

test.afterEach.always((t) => rmSync(t.context.directory, { recursive: true }));

test('a duplicate has a high number and the same file behind it', (t) => {
  const descriptor = openSync(t.context.file, 'r');
  const duplicate = duplicateDescriptor(descriptor, 4096);
  t.true(duplicate >= 4096);
  t.is(fstatSync(duplicate).ino, statSync(t.context.file).ino);
  closeSync(descriptor);
  closeSync(duplicate);
});

test('a failed call carries the name of its errno', (t) => {
  const error = t.throws(() => duplicateDescriptor(-1, 4096), { instanceOf: SystemCallError });
  t.is(error.code, 'EBADF');
  t.is(error.errno, 9);
  t.is(error.syscall, 'fcntl F_DUPFD_CLOEXEC');
});

test('an ioctl that a file does not know is ENOTTY', (t) => {
  const descriptor = openSync(t.context.file, 'r');
  t.is(t.throws(() => ioctl(descriptor, 0x4010e501, Buffer.alloc(16)), { instanceOf: SystemCallError }).code, 'ENOTTY');
  closeSync(descriptor);
});

test('a call on another thread fails with its own errno', async (t) => {
  const outcomes = await Promise.allSettled([
    unmount(join(t.context.directory, 'missing'), 0),
    unmount(t.context.directory, 0),
  ]);
  t.deepEqual(
    outcomes.map((outcome) => outcome.status === 'rejected' && outcome.reason.code),
    ['ENOENT', 'EINVAL'],
  );
});

test('a lock that another holds is told apart from a failure', (t) => {
  const [one, two] = [openSync(t.context.file, 'r'), openSync(t.context.file, 'r')];
  t.true(flock(one, 'shared'));
  t.true(flock(two, 'sharedNonBlocking'));
  t.false(flock(one, 'exclusiveNonBlocking'));
  t.true(flock(two, 'unlock'));
  t.true(flock(one, 'exclusive'));
  closeSync(one);
  closeSync(two);
  t.is(t.throws(() => flock(one, 'shared'), { instanceOf: SystemCallError }).code, 'EBADF');
});

test('an extended attribute is read whole, on this thread and on another', async (t) => {
  const value = 'x'.repeat(300);
  await execa('python3', [
    '-c',
    'import os, sys; os.setxattr(sys.argv[1], "user.test", sys.argv[2].encode())',
    t.context.file,
    value,
  ]);
  t.is(getExtendedAttribute(t.context.file, 'user.test').toString(), value);
  t.is((await readExtendedAttribute(t.context.file, 'user.test')).toString(), value);
  t.is(
    t.throws(() => getExtendedAttribute(t.context.file, 'user.none'), { instanceOf: SystemCallError }).code,
    'ENODATA',
  );
  await t.throwsAsync(readExtendedAttribute(t.context.file, 'user.none'), { code: 'ENODATA' });
});

test('a descriptor that another process sends arrives', (t) => {
  const [ours, theirs] = socketPair();
  t.is(t.throws(() => receiveDescriptor(ours), { instanceOf: SystemCallError }).code, 'EAGAIN');
  const script = `
import array, os, socket, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
peer = socket.socket(fileno=int(sys.argv[2]))
peer.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])`;
  const { status } = spawnSync('python3', ['-c', script, t.context.file, '0'], {
    stdio: [theirs, 'inherit', 'inherit'],
  });
  t.is(status, 0);
  const received = receiveDescriptor(ours) ?? -1;
  t.is(fstatSync(received).ino, statSync(t.context.file).ino);
  for (const descriptor of [ours, theirs, received]) closeSync(descriptor);
});

test('a peer that has gone without sending gives no descriptor', (t) => {
  const [ours, theirs] = socketPair();
  closeSync(theirs);
  t.is(receiveDescriptor(ours), undefined);
  closeSync(ours);
});
