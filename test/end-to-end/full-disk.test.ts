/**
 * A disk of the cache, or a quota on it, that others fill up while images are fetched: real file systems, the real daemon.
 */

import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { FakeFile } from '../../src/demo/fake-hub-repository.js';
import { eventually } from '../support/mount-client.js';
import { RunningPython } from '../support/mount-user.js';
import { MountedPool } from '../support/mounted-pool.js';
import { drain, ext4Disk, fill, quotaDisk, type SmallDisk } from '../support/small-disk.js';
import { smallPool } from '../support/small-pool.js';

const MIB = 2 ** 20;
/** One request's worth: the fake Hub never ends an answer that was to stall and did not come to it. */
const IMAGE_BYTES = 3 * MIB;
const STALL_AFTER_BYTES = 2 * MIB;

interface Pool {
  readonly pool: MountedPool;
  readonly files: readonly FakeFile[];
  /** What one process gets that opens and reads a task. */
  readonly read: (task: number) => Promise<{ readonly digest: string; readonly words: string }>;
  /** As the listing states it. */
  readonly sha256: (task: number) => string;
  readonly isCached: (task: number) => boolean;
  /** Holds a task open. */
  readonly hold: (task: number) => Promise<RunningPython>;
}

/** Holds a file open, and digests it whenever it is told to. */
const HOLD = `
file = open(args[0], 'rb')
out('open')
for _ in sys.stdin:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    file.seek(0)
    out(hashlib.sha256(file.read()).hexdigest())`;

async function poolOn(t: ExecutionContext, disk: SmallDisk, images: number, cacheSize = '1G'): Promise<Pool> {
  const { files, tasks } = smallPool(images, IMAGE_BYTES);
  const cacheDirectory = join(disk.path, 'cache');
  const limits = ['--cache-size', cacheSize, '--reserve-free', '0', '--idle-timeout', '4'];
  const pool = await MountedPool.start(t, { files, tasks, cacheDirectory, args: limits });
  const sha256 = (task: number) => files[task]?.sha256 ?? '?';
  return {
    pool,
    files,
    read: async (task) => {
      const { stdout, stderr } = await pool.run('sha256sum', [pool.path(`v/t${task}.sif`)]);
      return { digest: stdout.split(' ')[0] ?? '', words: stderr };
    },
    sha256,
    isCached: (task) => existsSync(join(cacheDirectory, 'blobs', sha256(task).slice(0, 2), sha256(task))),
    hold: async (task) => {
      const holder = new RunningPython(t.teardown, 'root', HOLD, pool.path(`v/t${task}.sif`));
      t.is(await holder.report(), 'open');
      return holder;
    },
  };
}

/** Opens a task whose bytes stop in the middle; runs `meanwhile` there, and lets it go on. */
async function duringFetch({ pool, files, read }: Pool, task: number, meanwhile: () => Promise<void>) {
  const file = files[task];
  const stall = pool.hub.fault({
    path: file?.path ?? '?',
    server: 'cdn',
    fault: { kind: 'stall', afterBytes: STALL_AFTER_BYTES },
    requests: 'every',
  });
  const reading = read(task);
  const partial = join(pool.cacheDirectory, 'partial', file?.sha256 ?? '?');
  await eventually('half of it has arrived', () => {
    return (existsSync(partial) && statSync(partial).size === STALL_AFTER_BYTES) || undefined;
  });
  await meanwhile();
  stall.remove();
  return await reading;
}

async function digestOf(holder: RunningPython): Promise<unknown> {
  holder.tell('read it again');
  return await holder.report();
}

test.serial(
  'a disk that others fill up during a fetch is relieved of what nobody holds, and the fetch goes on',
  async (t) => {
    const disk = await ext4Disk(t, 64 * MIB);
    const setUp = await poolOn(t, disk, 4);
    const { pool, sha256, read, isCached, hold } = setUp;
    const holder = await hold(0);
    for (const task of [1, 2]) t.is((await read(task)).digest, sha256(task));
    const { digest, words } = await duringFetch(setUp, 3, () => fill(disk));
    t.is(digest, sha256(3), words);
    t.deepEqual([0, 1, 2, 3].map(isCached), [true, false, true, true], 'what was used longest ago went, and no more');
    t.is(await digestOf(holder), sha256(0));
    const { fetches } = await pool.status();
    t.is(fetches.failed, 0);
    t.is(pool.log().filter(({ msg }) => /filled up during a fetch/.test(String(msg))).length, 1);
  },
);

test.serial(
  'with nothing to give up, that open alone fails, with the numbers; all else goes on, also after room was made',
  async (t) => {
    const disk = await ext4Disk(t, 64 * MIB);
    const setUp = await poolOn(t, disk, 3);
    const { pool, files, sha256, read, hold } = setUp;
    const holders = [await hold(0), await hold(1)];
    const { words } = await duringFetch(setUp, 2, () => fill(disk));
    t.regex(words, /No space left on device/);
    const failure = (await pool.status()).lastFailures[0];
    t.is(failure?.errno, 'ENOSPC');
    const missing = (files[2]?.sizeBytes ?? 0) - STALL_AFTER_BYTES;
    t.true(failure?.message.includes(`${missing} of ${files[2]?.sizeBytes} bytes are missing`), failure?.message);
    t.regex(failure?.message ?? '', /2 images are held open.*free some room|free some room.*2 images are held open/);
    t.deepEqual(readdirSync(join(pool.cacheDirectory, 'partial')), [], 'what is of no use is not left on a full disk');
    // The others never notice.
    for (const [task, holder] of holders.entries()) t.is(await digestOf(holder), sha256(task));
    t.is((await read(0)).digest, sha256(0));
    t.is((await pool.run('ls', [pool.path('v')])).stdout, 't0.sif\nt1.sif\nt2.sif');
    await drain(disk);
    t.is((await read(2)).digest, sha256(2), 'no restart is needed');
  },
);

test.serial('a quota that nothing tells of is a full disk: what nobody holds makes room', async (t) => {
  const disk = await quotaDisk(t, 4 * IMAGE_BYTES);
  const { pool, sha256, read, isCached, hold } = await poolOn(t, disk, 8);
  const holder = await hold(0);
  for (let task = 1; task < 8; task += 1) {
    const { digest, words } = await read(task);
    t.is(digest, sha256(task), words);
  }
  t.true(isCached(0) && isCached(7));
  t.is(await digestOf(holder), sha256(0));
  const evictions = pool.log().filter(({ msg }) => /filled up during a fetch/.test(String(msg)));
  t.true(
    evictions.some(({ reason }) => /EDQUOT/.test(String(reason))),
    JSON.stringify(evictions),
  );
});

test.serial('a quota that is taken by open images fails what does not fit, and nothing else', async (t) => {
  const disk = await quotaDisk(t, 3 * IMAGE_BYTES);
  const { pool, sha256, read, hold } = await poolOn(t, disk, 3);
  const holders = [await hold(0), await hold(1)];
  t.regex((await read(2)).words, /No space left on device/);
  t.regex((await pool.status()).lastFailures[0]?.message ?? '', /EDQUOT.*quota is full/);
  for (const [task, holder] of holders.entries()) t.is(await digestOf(holder), sha256(task));
  holders[0]?.signal('SIGKILL');
  await holders[0]?.exit();
  await eventually('the lease has come back', async () => (await pool.status()).kernel.openHandles === 1 || undefined);
  const { digest, words } = await read(2);
  t.is(digest, sha256(2), words);
});
