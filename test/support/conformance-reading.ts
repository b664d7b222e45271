/** Looking, reading and refusing: what a mount does whoever mounts it, by whatever driver. */

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import anyTest, { type TestFn } from 'ava';
import { MODIFIED_SECONDS, STATE_ATTRIBUTE, STATE_VALUE } from './memory-file-system.js';
import {
  type MountFixture,
  type MountVariant,
  mountedFixture,
  passesThrough,
  SOURCE_BYTES,
  SPARSE_BYTES,
  SPARSE_END,
} from './mount-fixture.js';
import { python, pythonValue, RunningPython } from './mount-user.js';

/** Defines the tests, over one mount for all of them. */
export function testReading(variant: MountVariant): void {
  const test = anyTest as TestFn<MountFixture>;
  const { user } = variant;
  const undo: (() => Promise<void>)[] = [];

  test.before('mount', async (t) => {
    t.context = await mountedFixture((step) => void undo.unshift(step), variant);
  });
  test.after.always('unmount', async () => {
    for (const step of undo) await step();
  });

  test('reads are passed through where the kernel allows it, and only there', async (t) => {
    const state = await t.context.server.state();
    t.is(state.driver, variant.driver);
    t.is(state.passthrough, passesThrough(variant));
  });

  test('a listing shows every entry with its kind', async (t) => {
    const script = `
for directory in args:
    out(sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir(directory)))`;
    const { mountpoint } = t.context;
    t.deepEqual(await python(user, script, mountpoint, join(mountpoint, 'easy')), [
      [
        ['easy', true],
        ['hard', true],
      ],
      [
        ['broken.sif', false],
        ['one.sif', false],
        ['slow.sif', false],
        ['sparse.sif', false],
      ],
    ]);
  });

  test('stat tells size, blocks, mode, times and links, and opens nothing', async (t) => {
    const script = `
s = os.stat(args[0])
out([s.st_size, s.st_blocks, oct(s.st_mode), s.st_mtime, s.st_ctime, s.st_nlink])`;
    const value = await pythonValue(user, script, join(t.context.mountpoint, 'easy/one.sif'));
    t.deepEqual(value, [
      SOURCE_BYTES,
      Math.ceil(SOURCE_BYTES / 512),
      '0o100555',
      MODIFIED_SECONDS,
      MODIFIED_SECONDS,
      2,
    ]);
  });

  test('statx with a birth time asked for is answered like stat', async (t) => {
    const script = `
import subprocess
out(subprocess.run(['stat', '-c', '%s %h %W', args[0]], capture_output=True, text=True, check=True).stdout.split())`;
    const [size, links, birth] = (await pythonValue(
      user,
      script,
      join(t.context.mountpoint, 'hard/same.sif'),
    )) as string[];
    t.deepEqual([size, links], [String(SOURCE_BYTES), '2']);
    t.true(birth === '0' || birth === '-');
  });

  test('two names of one file have the same inode number', async (t) => {
    const { mountpoint } = t.context;
    const script = 'out([os.stat(path).st_ino for path in args])';
    const value = await pythonValue(user, script, join(mountpoint, 'easy/one.sif'), join(mountpoint, 'hard/same.sif'));
    const [one, same] = value as number[];
    t.is(one, same);
  });

  test('a directory counts its subdirectories as links', async (t) => {
    t.is(await pythonValue(user, 'out(os.stat(args[0]).st_nlink)', t.context.mountpoint), 4);
  });

  test('a file read from start to end has the content of its source', async (t) => {
    const script = 'out(hashlib.sha256(open(args[0], "rb").read()).hexdigest())';
    t.is(await pythonValue(user, script, join(t.context.mountpoint, 'easy/one.sif')), t.context.sha256);
  });

  test('pread ends where the file ends', async (t) => {
    const script = `
fd = os.open(args[0], os.O_RDONLY)
size = os.fstat(fd).st_size
out([len(os.pread(fd, 4096, size - 1)), len(os.pread(fd, 4096, size)), len(os.pread(fd, 4096, size + 10**12))])`;
    t.deepEqual(await pythonValue(user, script, join(t.context.mountpoint, 'easy/one.sif')), [1, 0, 0]);
  });

  test('pread finds what lies beyond 2 GiB', async (t) => {
    const script = `
fd = os.open(args[0], os.O_RDONLY)
out(os.pread(fd, 100, os.fstat(fd).st_size - int(args[1])).decode())`;
    const path = join(t.context.mountpoint, 'easy/sparse.sif');
    t.is(await pythonValue(user, script, path, String(SPARSE_END.length)), SPARSE_END);
  });

  test.serial('a file of 3.4 GB is read to its last byte, and no further', async (t) => {
    const script = `
mounted, source = [os.open(path, os.O_RDONLY) for path in args]
at, differing = 0, []
while chunk := os.read(mounted, 1 << 20):
    if os.pread(source, len(chunk), at) != chunk: differing.append(at)
    at += len(chunk)
out([os.fstat(mounted).st_size, at, differing])`;
    const path = join(t.context.mountpoint, 'easy/sparse.sif');
    const read = await pythonValue(user, script, path, t.context.sparseSource);
    t.deepEqual(read, [SPARSE_BYTES, SPARSE_BYTES, []]);
  });

  test('a mapped file has the content of its source', async (t) => {
    const script = `
import mmap
fd = os.open(args[0], os.O_RDONLY)
for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
    out(hashlib.sha256(mmap.mmap(fd, 0, flags=flags, prot=mmap.PROT_READ)).hexdigest())`;
    const digests = await python(user, script, join(t.context.mountpoint, 'easy/one.sif'));
    t.deepEqual(digests, [t.context.sha256, t.context.sha256]);
  });

  test('O_DIRECT reads have the content of the source', async (t) => {
    const script = `
import mmap
fd = os.open(args[0], os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 65536)
digest = hashlib.sha256()
while (count := os.readv(fd, [buffer])) > 0:
    digest.update(buffer[:count])
out(digest.hexdigest())`;
    t.is(await pythonValue(user, script, join(t.context.mountpoint, 'easy/one.sif')), t.context.sha256);
  });

  test('sendfile sends the content of the source', async (t) => {
    const script = `
import tempfile
fd = os.open(args[0], os.O_RDONLY)
with tempfile.TemporaryFile() as copy:
    offset = 0
    while (count := os.sendfile(copy.fileno(), fd, offset, 1 << 20)) > 0:
        offset += count
    copy.seek(0)
    out(hashlib.sha256(copy.read()).hexdigest())`;
    t.is(await pythonValue(user, script, join(t.context.mountpoint, 'easy/one.sif')), t.context.sha256);
  });

  test('a file has no holes, so that copying programs leave nothing out', async (t) => {
    const script = `
fd = os.open(args[0], os.O_RDONLY)
out([os.lseek(fd, 10, os.SEEK_DATA), os.lseek(fd, 10, os.SEEK_HOLE), errno_of(lambda: os.lseek(fd, 1 << 40, os.SEEK_DATA))])`;
    t.deepEqual(await pythonValue(user, script, join(t.context.mountpoint, 'easy/sparse.sif')), [
      10,
      SPARSE_BYTES,
      'ENXIO',
    ]);
  });

  test('whatever would change something ends in EROFS', async (t) => {
    const script = `
root, path, directory = args
calls = {
    'create': lambda: os.open(root + '/new', os.O_CREAT | os.O_WRONLY),
    'write': lambda: os.open(path, os.O_WRONLY),
    'read and write': lambda: os.open(path, os.O_RDWR),
    'truncate on open': lambda: os.open(path, os.O_RDONLY | os.O_TRUNC),
    'truncate': lambda: os.truncate(path, 0),
    'unlink': lambda: os.unlink(path),
    'mkdir': lambda: os.mkdir(root + '/new'),
    'rmdir': lambda: os.rmdir(directory),
    'rename': lambda: os.rename(path, root + '/new'),
    'link': lambda: os.link(path, root + '/new'),
    'symlink': lambda: os.symlink(path, root + '/new'),
    'chmod': lambda: os.chmod(path, 0o777),
    'chown': lambda: os.chown(path, 1, 1),
    'utime': lambda: os.utime(path),
    'setxattr': lambda: os.setxattr(path, 'user.x', b'y'),
    'removexattr': lambda: os.removexattr(path, 'user.x'),
    'mkfifo': lambda: os.mkfifo(root + '/new'),
}
out({name: errno_of(call) for name, call in calls.items()})`;
    const { mountpoint } = t.context;
    const args = [mountpoint, join(mountpoint, 'easy/one.sif'), join(mountpoint, 'hard')];
    const outcomes = (await pythonValue(user, script, ...args)) as Record<string, string>;
    for (const [name, errno] of Object.entries(outcomes)) t.is(errno, 'EROFS', name);
    t.is(Object.keys(outcomes).length, 17);
  });

  test('what is not there ends in ENOENT, and what is not so in its own errno', async (t) => {
    const script = `
root = args[0]
calls = {
    'open of a missing file': lambda: os.open(root + '/easy/none.sif', os.O_RDONLY),
    'stat of a missing directory': lambda: os.stat(root + '/none/one.sif'),
    'a name that is not UTF-8': lambda: os.stat(os.fsencode(root) + b'/easy/\\xff.sif'),
    'a name that is too long': lambda: os.stat(root + '/' + 'x' * 256),
    'a file as a directory': lambda: os.stat(root + '/easy/one.sif/x'),
    'listing a file': lambda: os.scandir(root + '/easy/one.sif'),
    'readlink of a file': lambda: os.readlink(root + '/easy/one.sif'),
    'open of what failed its proof': lambda: os.open(root + '/easy/broken.sif', os.O_RDONLY),
}
out({name: errno_of(call) for name, call in calls.items()})`;
    t.deepEqual(await pythonValue(user, script, t.context.mountpoint), {
      'open of a missing file': 'ENOENT',
      'stat of a missing directory': 'ENOENT',
      'a name that is not UTF-8': 'ENOENT',
      'a name that is too long': 'ENAMETOOLONG',
      'a file as a directory': 'ENOTDIR',
      'listing a file': 'ENOTDIR',
      'readlink of a file': 'EINVAL',
      'open of what failed its proof': 'EBADMSG',
    });
  });

  test('extended attributes are listed and read; a missing one is ENODATA, a buffer too small ERANGE', async (t) => {
    const script = `
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
path, name = args
out(sorted(os.listxattr(path)))
out(os.getxattr(path, name).decode())
out(errno_of(lambda: os.getxattr(path, 'user.none')))
def small():
    if libc.getxattr(path.encode(), name.encode(), ctypes.create_string_buffer(2), 2) < 0:
        raise OSError(ctypes.get_errno(), 'getxattr')
out(errno_of(small))
out(libc.getxattr(path.encode(), name.encode(), None, 0))`;
    const path = join(t.context.mountpoint, 'easy/one.sif');
    t.deepEqual(await python(user, script, path, STATE_ATTRIBUTE), [
      ['user.tmaxfs.sha256', STATE_ATTRIBUTE],
      STATE_VALUE,
      'ENODATA',
      'ERANGE',
      STATE_VALUE.length,
    ]);
  });

  test.serial(
    'attributes of other namespaces are not supported, so that ls asks for them once and not for every file',
    async (t) => {
      const { server, mountpoint } = t.context;
      const script = `
import subprocess
subprocess.run(['ls', '-l', args[0]], check=True, capture_output=True)
out([errno_of(lambda: os.getxattr(args[0] + '/one.sif', name)) for name in ('security.capability', 'system.posix_acl_access')])`;
      const before = (await server.state()).statistics.requests['GETXATTR'] ?? 0;
      const outcomes = await pythonValue(user, script, join(mountpoint, 'easy'));
      t.deepEqual(outcomes, ['ENOTSUP', 'ENOTSUP']);
      const asked = ((await server.state()).statistics.requests['GETXATTR'] ?? 0) - before;
      t.true(asked < 8, `${asked} requests for 4 files`);
    },
  );

  test('statfs tells what the file system says of its room', async (t) => {
    const script = `
s = os.statvfs(args[0])
out([s.f_frsize, s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_namemax])`;
    t.deepEqual(await pythonValue(user, script, t.context.mountpoint), [4096, 1000, 400, 400, 4, 255]);
  });

  test('the mode bits decide who may do what', async (t) => {
    const script = 'out([os.access(args[0], mode) for mode in (os.R_OK, os.X_OK, os.W_OK)])';
    t.deepEqual(await pythonValue(user, script, join(t.context.mountpoint, 'easy/one.sif')), [true, true, false]);
  });

  test('df and the mount table name the pool and the type of the mount', async (t) => {
    const script = `
import subprocess
out(subprocess.run(['df', '--output=source,fstype', args[0]], capture_output=True, text=True).stdout.split()[-2:])`;
    t.deepEqual(await pythonValue(user, script, t.context.mountpoint), ['tmax-pool', 'fuse.tmaxfs']);
  });

  test('the device number of the mount is not that of the disk', async (t) => {
    const { dev } = await stat(t.context.directory);
    t.not(await pythonValue(user, 'out(os.stat(args[0]).st_dev)', t.context.mountpoint), dev);
  });

  test('a thousand files can be open at once, and leave nothing behind when they are closed', async (t) => {
    const { server, mountpoint, sha256 } = t.context;
    const script = `
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
fds = [os.open(args[0], os.O_RDONLY) for _ in range(1000)]
out(len(fds))
sys.stdin.readline()
out(sum(os.pread(fd, 1, n * 1000) == os.pread(fds[0], 1, n * 1000) for n, fd in enumerate(fds)))
for fd in fds: os.close(fd)`;
    const program = new RunningPython(t.teardown, user, script, join(mountpoint, 'easy/one.sif'));
    t.is(await program.report(), 1000);
    const before = await server.state();
    t.true(before.statistics.openHandles >= 1000);
    if (passesThrough(variant)) t.true(before.statistics.backingIds >= 1);
    program.tell('go on');
    t.is(await program.report(), 1000);
    await program.exit();
    await server.until('all is closed', (state) => state.statistics.openHandles < 1000);
    t.is(
      await pythonValue(
        user,
        'out(hashlib.sha256(open(args[0], "rb").read()).hexdigest())',
        join(mountpoint, 'easy/one.sif'),
      ),
      sha256,
    );
  });
}
