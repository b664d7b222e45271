/**
 * Real programs over the mount of a real daemon: read by the kernel itself (passthrough), relayed for root (the cache lies
 * on an overlay, as in containers), and relayed for an ordinary user.
 */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { CommandResult } from '../support/command.js';
import { eventually, ORDINARY_UID } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { overlayFolder } from '../support/overlay.js';
import { hasEnded } from '../support/processes.js';
import { contentOf, smallPool } from '../support/small-pool.js';
import type { Lifetime } from '../support/temporary.js';

const PAYLOAD_BYTES = 8_000_000;
const IMAGES = 3;

type Variant = 'passthrough' | 'relayed, cache on an overlay' | 'an ordinary user';

const undo: (() => Promise<void> | void)[] = [];
const lifetime: Lifetime = { teardown: (step) => void undo.unshift(step) };
test.after.always('unmount', async () => {
  for (const step of undo) await step();
});

const { files, tasks } = smallPool(IMAGES, PAYLOAD_BYTES);
const image = contentOf(files[0]);
const sha256 = files[0]?.sha256 ?? '';
/** Where the squashfs begins in the image. */
const partitionOffset = image.indexOf('hsqs');

async function mountedPool(variant: Variant): Promise<MountedPool> {
  const options = { files, tasks };
  switch (variant) {
    case 'passthrough':
      return MountedPool.start(lifetime, options);
    case 'an ordinary user':
      return MountedPool.start(lifetime, { ...options, uid: ORDINARY_UID });
    case 'relayed, cache on an overlay':
      return MountedPool.start(lifetime, { ...options, cacheDirectory: join(await overlayFolder(lifetime), 'cache') });
  }
}

for (const variant of ['passthrough', 'relayed, cache on an overlay', 'an ordinary user'] as const) {
  const isRoot = variant !== 'an ordinary user';
  let pool: MountedPool;
  let work: string;
  /** Runs a program in the variant's work folder, as who mounted; fails with what it says. */
  const shell = async (script: string, ...args: readonly string[]): Promise<string> => {
    const { exitCode, stdout, stderr }: CommandResult = await pool.run('sh', [
      '-euc',
      `cd ${work}; ${script}`,
      'sh',
      ...args,
    ]);
    if (exitCode !== 0) throw new Error(`${script} ended with ${exitCode}: ${stdout}${stderr}`);
    return stdout;
  };
  const define = (title: string, run: (t: ExecutionContext) => Promise<void>) =>
    test.serial(`${title} (${variant})`, run);

  define('reads are passed through for root on an ordinary disk, and else relayed', async (t) => {
    pool = await mountedPool(variant);
    work = join(pool.folder, 'work');
    await pool.run('mkdir', [work]);
    t.is((await pool.run('sha256sum', [pool.path('v/t0.sif')])).stdout.split(' ')[0], sha256);
    t.is((await pool.status()).passthrough, variant === 'passthrough');
  });

  define('df shows the pool as a disk', async (t) => {
    const [, shown] = (await shell(`df --output=source,fstype,target "$1"`, pool.mountpoint)).split('\n');
    t.deepEqual(shown?.split(/ +/), ['test-org/test-pool', 'fuse.tmaxfs', pool.mountpoint]);
  });

  define('find finds every image by type, size and permission, without fetching', async (t) => {
    const before = pool.hub.requests.all.length;
    const found = await shell(
      `find "$1" -type f -size +1M -perm -555 -not -newermt now -printf '%P\n'`,
      pool.mountpoint,
    );
    t.is(found.split('\n').length, 2 * IMAGES);
    t.is(pool.hub.requests.all.length, before);
  });

  define('sha256sum checks every image', async (t) => {
    const sums = files.map((file, index) => `${file.sha256}  ${pool.path(`v/t${index}.sif`)}`).join('\n');
    t.is(await shell(`echo "$1" | sha256sum --check --quiet`, sums), '');
  });

  define('cp copies byte for byte, whichever way it takes', async (t) => {
    await shell(
      `for how in "--sparse=always" "--sparse=never" "--reflink=auto" "--archive"; do
         rm -f copy; cp $how "$1" copy; cmp copy "$1"; sha256sum copy; done`,
      pool.path('v/t0.sif'),
    );
    t.is((await shell('sha256sum < copy')).slice(0, 64), sha256);
  });

  define('rsync copies the tree and finds nothing to do the second time', async (t) => {
    await shell(`rsync --archive "$1/" rsynced`, pool.path('v'));
    t.is(await shell(`rsync --archive --checksum --itemize-changes "$1/" rsynced`, pool.path('v')), '');
    t.is((await shell('sha256sum rsynced/t0.sif')).slice(0, 64), sha256);
  });

  define('tar packs the tree and finds it equal', async (t) => {
    await shell(`tar --create --file=all.tar --directory="$1" v pool`, pool.mountpoint);
    await shell(`tar --compare --file=all.tar --directory="$1"`, pool.mountpoint);
    t.is(
      (await shell('mkdir tarred; tar --extract --file=all.tar --directory=tarred; sha256sum tarred/v/t0.sif')).slice(
        0,
        64,
      ),
      sha256,
    );
    t.is(await shell('stat --format=%h tarred/v/t0.sif'), '2', 'two names of one image stay hard links');
  });

  for (const [engine, options] of [
    ['psync', '--bs=4k --rw=randread'],
    ['psync', '--bs=1m --rw=read --direct=1'],
    ['mmap', '--bs=4k --rw=randread'],
    ['splice', '--bs=64k --rw=read'],
    ['libaio', '--bs=128k --rw=randread --iodepth=8 --direct=1'],
  ] as const) {
    define(`fio --readonly reads with ${engine} ${options}`, async (t) => {
      const output = await shell(
        `fio --readonly --name=reader --filename="$1" --size=7m --ioengine=${engine} ${options} --numjobs=4 --group_reporting --output-format=terse`,
        pool.path('v/t0.sif'),
      );
      t.true(output.includes('reader'));
    });
  }

  define('splice moves the content of the file into a pipe', async (t) => {
    const script = `
import os, sys, hashlib
source = os.open(sys.argv[1], os.O_RDONLY)
reading, writing = os.pipe()
digest = hashlib.sha256()
while (count := os.splice(source, writing, 65536)) > 0:
    while count > 0:
        chunk = os.read(reading, count)
        digest.update(chunk)
        count -= len(chunk)
print(digest.hexdigest())`;
    t.is((await pool.run('python3', ['-c', script, pool.path('v/t0.sif')])).stdout, sha256);
  });

  /** As long as any other test may keep a mount namespace of its own. */
  const NAMESPACE_LIMIT_MS = 100_000;

  define('squashfuse mounts the squashfs inside of an image', async (t) => {
    const inner = join(work, 'inner');
    await shell(`mkdir inner; squashfuse -o offset=${partitionOffset} "$1" inner`, pool.path('v/t0.sif'));
    try {
      t.is(await shell('cat inner/etc/seed; stat --format=%s inner/payload'), `0\n${PAYLOAD_BYTES}`);
    } finally {
      await shell('fusermount3 -u inner || fusermount3 -uz inner');
    }
    await eventually('squashfuse has let go', async () => (await pool.status()).kernel.openHandles === 0 || undefined);
    t.deepEqual(readdirSync(inner), []);
  });

  if (!isRoot) continue;

  define('the kernel mounts the squashfs inside of an image through a loop device', async (t) => {
    await shell(`mkdir loop; mount -t squashfs -o loop,ro,offset=${partitionOffset} "$1" loop`, pool.path('v/t0.sif'));
    try {
      t.is(await shell('cat loop/etc/seed; stat --format=%s loop/payload'), `0\n${PAYLOAD_BYTES}`);
      t.is((await pool.status()).kernel.openHandles, 1);
    } finally {
      await shell('umount loop');
    }
    await eventually(
      'the loop device has let go',
      async () => (await pool.status()).kernel.openHandles === 0 || undefined,
    );
  });

  define('a bind mount of the mount, and of one image, show the same', async (t) => {
    await shell(`mkdir bound; touch image; mount --bind "$1" bound; mount --bind "$1/v/t0.sif" image`, pool.mountpoint);
    try {
      t.deepEqual(
        (await shell('sha256sum bound/v/t0.sif image')).split('\n').map((line) => line.slice(0, 64)),
        [sha256, sha256],
      );
      const rejected = await pool.run('sh', ['-c', `echo x > ${join(work, 'bound/v/new')}`]);
      t.regex(rejected.stderr, /Read-only file system/);
    } finally {
      await shell('umount image bound');
    }
  });

  define('a second mount namespace reads the same, as a container does', async (t) => {
    const script =
      'mount --make-rprivate /; mount -t tmpfs none /mnt; mkdir /mnt/tree; mount --rbind "$0" /mnt/tree; cd /mnt/tree; sha256sum v/t0.sif';
    const { stdout, stderr } = await pool.run('unshare', [
      '--mount',
      '--pid',
      '--fork',
      'sh',
      '-ec',
      script,
      pool.mountpoint,
    ]);
    t.is(stdout.slice(0, 64), sha256, stderr);
  });

  define('after all that nothing is open any more, and the mount ends', async (t) => {
    const { kernel, pid } = await pool.status();
    t.is(kernel.openHandles, 0);
    t.is(kernel.openDirectories, 0);
    t.is(kernel.backingIds, 0);
    t.is((await pool.tmaxfs(['unmount', pool.mountpoint])).stderr, '');
    // Another test's mount namespace may have a copy of the mount, and keeps the daemon until that test ends.
    t.true(await eventually('the daemon has ended', () => hasEnded(pid) || undefined, NAMESPACE_LIMIT_MS));
  });
}
