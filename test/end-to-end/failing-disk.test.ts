/**
 * A disk of the cache that becomes read-only, or fails to write: what is there is served, what is fetched fails with the
 * cause, and the daemon goes on by itself once the disk is mended. Real file systems, the real daemon.
 */

import { existsSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { topMountAt } from '../../src/fuse/mount-table.js';
import { pythonValue } from '../support/mount-user.js';
import { IMAGE_BYTES, PoolOnDisk } from '../support/pool-on-disk.js';
import { drain, ext4Disk, fill, remount, type SmallDisk, unmount } from '../support/small-disk.js';
import { temporaryFolder } from '../support/temporary.js';

const DISK_BYTES = 64 * 2 ** 20;

/** What the disk has of a file, not what the page cache has. */
const READ_FROM_DISK = `
descriptor = os.open(args[0], os.O_RDONLY)
os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
out(hashlib.sha256(os.read(descriptor, 1 << 30)).hexdigest())`;

const onDisk = (path: string) => pythonValue('root', READ_FROM_DISK, path);

test.serial(
  'a disk that is remounted read-only serves what it has; a fetch fails and says so; mended, it needs no restart',
  async (t) => {
    const disk = await ext4Disk(t, DISK_BYTES);
    const cache = await PoolOnDisk.start(t, disk, 3);
    const holder = await cache.hold(0);
    await cache.isServed(1);
    await remount(disk, 'ro');
    t.is(await holder.digest(), cache.sha256(0));
    for (const task of [0, 1]) await cache.isServed(task);
    t.regex((await cache.read(2)).words, /Input\/output error/);
    t.regex(await cache.lastFailure(), /^EIO: .*EROFS.*read-only.*mount it for writing again/);
    for (const words of [
      ['ls', cache.pool.path('v')],
      ['df', cache.pool.mountpoint],
    ]) {
      t.is((await cache.pool.run(words[0] ?? '', words.slice(1))).exitCode, 0, words.join(' '));
    }
    await remount(disk, 'rw');
    await cache.isServed(2);
    t.is(await holder.digest(), cache.sha256(0));
  },
);

test.serial(
  'a file system that ends in errors during a fetch fails that open alone; repaired and mounted again, it is used again',
  async (t) => {
    const disk = await ext4Disk(t, DISK_BYTES, { options: ['-e', 'remount-ro'] });
    const cache = await PoolOnDisk.start(t, disk, 2);
    const holder = await cache.hold(0);
    const { words } = await cache.duringFetch(1, async () => breakFileSystem(t, disk));
    t.regex(words, /Input\/output error/);
    t.regex(await cache.lastFailure(), /^EIO: .*(EROFS|EIO)/);
    t.is(await holder.digest(), cache.sha256(0));
    await cache.isServed(0);
    await holder.close();
    await unmount(disk);
    // 1: errors were found, and mended.
    t.true([0, 1].includes((await execa('e2fsck', ['-p', disk.image], { reject: false })).exitCode ?? 9));
    await execa('mount', ['-o', 'loop', disk.image, disk.mountpoint]);
    for (const task of [0, 1]) await cache.isServed(task);
  },
);

/** As if the kernel had found its structures damaged. */
function breakFileSystem(t: ExecutionContext, disk: SmallDisk): void {
  const device = basename(topMountAt(disk.mountpoint)?.source ?? '');
  writeFileSync(`/sys/fs/ext4/${device}/trigger_fs_error`, 'by a test of tmaxfs');
  t.throws(() => writeFileSync(join(disk.path, 'any'), ''), { code: 'EROFS' });
}

test.serial(
  'what the disk has failed to write is never published, not even by a later open that finds it in memory',
  async (t) => {
    // A disk that promises more than it has: writes succeed, and are lost when they are to reach it.
    const folder = temporaryFolder(t);
    await execa('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', folder]);
    t.teardown(() => execa('umount', ['--lazy', folder]));
    const disk = await ext4Disk(t, DISK_BYTES, { folder, options: ['-O', '^has_journal', '-e', 'continue'] });
    const cache = await PoolOnDisk.start(t, disk, 2);
    const holder = await cache.hold(0);
    const underneath = { ...disk, path: folder };
    await fill(underneath);
    t.regex((await cache.read(1)).words, /No space left on device/);
    t.regex(await cache.lastFailure(), /^ENOSPC: .*fsync/);
    t.false(cache.isCached(1));
    t.is(await holder.digest(), cache.sha256(0));
    await drain(underneath);
    await cache.isServed(1);
    t.is(await onDisk(cache.blobPath(1)), cache.sha256(1), 'the disk itself has it');
  },
);

test.serial(
  'a daemon that starts on a read-only disk serves what is there, whatever it would tidy up, and fetches once it can',
  async (t) => {
    const disk = await ext4Disk(t, DISK_BYTES);
    const cache = await PoolOnDisk.start(t, disk, 4);
    for (const task of [0, 1, 2]) await cache.isServed(task);
    const { pool } = cache;
    t.is((await pool.tmaxfs(['unmount', pool.mountpoint])).exitCode, 0);
    const stray = join(pool.cacheDirectory, 'blobs', 'stray');
    const partial = join(pool.cacheDirectory, 'partial', 'ab'.repeat(32));
    for (const path of [stray, partial, join(pool.cacheDirectory, 'quarantine', 'stray')]) writeFileSync(path, 'x');
    await remount(disk, 'ro');
    const { exitCode, stderr } = await pool.tmaxfs([...pool.mountCommand, '--cache-size', String(2 * IMAGE_BYTES)]);
    t.is(exitCode, 0, stderr);
    for (const task of [0, 1, 2]) await cache.isServed(task);
    t.regex((await cache.read(3)).words, /Input\/output error/);
    t.regex(await cache.lastFailure(), /^EIO: .*EROFS.*read-only/);
    t.true(existsSync(stray));
    await remount(disk, 'rw');
    await cache.isServed(3);
    t.is([0, 1, 2, 3].filter((task) => cache.isCached(task)).length, 1, 'within the limit again');
    t.truthy(await pool.logged((line) => JSON.stringify(line).includes("can't be written")));
  },
);
