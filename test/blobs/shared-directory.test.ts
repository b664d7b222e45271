/** Several daemons on one cache directory: one limit, whoever takes the room. Each daemon is a process, or a cache of its own. */

import { existsSync, lstatSync, mkdirSync, readdirSync, rmSync, statSync, utimesSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { CacheUsage } from '../../src/blobs/cache-usage.js';
import type { CapacityLimits } from '../../src/blobs/capacity.js';
import { type Blob, blobOf, blobPath, errnoOf, holds, proofPath, rot, setUp } from '../support/blob-cache.js';
import { memoryDisk } from '../support/memory-disk.js';
import { packagePath } from '../support/paths.js';
import { CacheProcess } from '../support/shared-cache-process.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;
/** Proofs and the like, a page each. */
const SMALL_FILES_BYTES = 200 * 1024;
const never = new AbortController().signal;

function limitsOf(limitBytes: number, leasePatienceMs = 20): CapacityLimits {
  return { limitBytes, reserveFreeBytes: 0, leasePatienceMs };
}

/** Bytes of all that lies in the cache, each folder looked at in the order in which bytes move. */
function bytesIn(root: string): number {
  const files = new Map<string, number>();
  for (const folder of ['partial', 'blobs', 'retired']) {
    for (const entry of readdirSync(join(root, folder), { recursive: true, withFileTypes: true })) {
      const stats = lstatSync(join(entry.parentPath, entry.name), { throwIfNoEntry: false });
      if (stats?.isFile()) files.set(String(stats.ino), Math.min(stats.size, stats.blocks * 512));
    }
  }
  return [...files.values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** Resolves once daemons have looked for room so often. */
async function looks(root: string, count: number): Promise<void> {
  const lastLook = () => statSync(join(root, 'reservations', 'lock'), { bigint: true }).mtimeNs;
  for (let look = 0, before = lastLook(); look < count; before = lastLook()) {
    await setImmediate();
    if (lastLook() !== before) look += 1;
  }
}

for (const form of ['kernel locks', 'lease files']) {
  const newRoot = async (t: ExecutionContext, root = temporaryFolder(t)) => {
    const { layout } = await BlobStore.open(root);
    if (form === 'lease files') mkdirSync(layout.lockOwners, { recursive: true });
    return root;
  };

  test(`${form}: what other daemons have fetched since counts, and is evicted like our own`, async (t) => {
    const limits = limitsOf(3 * MIB);
    const first = await setUp(t, { root: await newRoot(t), limits });
    const second = await setUp(t, { root: first.root, limits });
    const theirs = ['a', 'b', 'c'].map((seed) => blobOf(seed, MIB));
    theirs.forEach(second.add);
    for (const blob of theirs) (await second.open(blob)).release();
    const ours = blobOf('ours', MIB);
    first.add(ours);
    (await first.open(ours)).release();
    t.deepEqual(
      theirs.map((blob) => existsSync(blobPath(first.root, blob))),
      [false, true, true],
    );
    t.is(first.cache.state(theirs[2]?.address.sha256 ?? '').state, 'ready');
    t.is(bytesIn(first.root), 3 * MIB);
  });

  test(`${form}: processes that fetch at one time never have more on disk than the limit, all together`, async (t) => {
    const disk = await memoryDisk(t, 64 * MIB);
    const limits = limitsOf(6 * MIB, 60_000);
    const root = await newRoot(t, join(disk.path, 'cache'));
    const daemons = await Promise.all([1, 2, 3].map(() => CacheProcess.start(t, { root, limits })));
    let mostBytes = 0;
    let isRunning = true;
    const watching = (async () => {
      while (isRunning) {
        mostBytes = Math.max(mostBytes, disk.usedBytes());
        await setImmediate();
      }
    })();
    const outcomes = await Promise.all(
      daemons.flatMap((daemon, number) =>
        Array.from({ length: 8 }, async (_, index) => {
          // Some are wanted by all of them.
          const seed = index < 2 ? `shared ${index}` : `${number} ${index}`;
          const errno = await daemon.open(seed, MIB);
          await daemon.release(seed);
          return errno;
        }),
      ),
    );
    isRunning = false;
    await watching;
    t.deepEqual(new Set(outcomes), new Set([undefined]));
    t.true(mostBytes <= 6 * MIB + SMALL_FILES_BYTES, `${mostBytes} bytes at one time`);
    t.true(mostBytes >= 3 * MIB, `${mostBytes} bytes at most: nothing was tried`);
    t.deepEqual(
      readdirSync(join(root, 'reservations')).filter((name) => name !== 'lock'),
      [],
    );
  });

  test(`${form}: what a fetch of another daemon will take is reserved from its first byte, and waited for`, async (t) => {
    const limits = limitsOf(4 * MIB, 60_000);
    const { root, add, open, source } = await setUp(t, { root: await newRoot(t), limits });
    const other = await CacheProcess.start(t, { root, limits });
    const finish = await other.openHalf('theirs', 3 * MIB);
    t.true(bytesIn(root) < 2 * MIB);
    const ours = blobOf('ours', 2 * MIB);
    add(ours);
    const opening = open(ours);
    const theirs = blobPath(root, blobOf('theirs', 3 * MIB));
    await looks(root, 3);
    t.deepEqual(source.downloads, []);
    t.is(await finish(), undefined);
    await other.release('theirs');
    t.true(holds(await opening, ours));
    t.false(existsSync(theirs));
  });

  test(`${form}: what a killed daemon had reserved is free at once, and what it had fetched makes room`, async (t) => {
    const limits = limitsOf(4 * MIB);
    const { root, add, open } = await setUp(t, { root: await newRoot(t), limits });
    const other = await CacheProcess.start(t, { root, limits });
    await other.openHalf('theirs', 4 * MIB);
    const reserved = () => readdirSync(join(root, 'reservations')).filter((name) => name !== 'lock');
    t.is(reserved().length, 1);
    await other.kill();
    const ours = blobOf('ours', 4 * MIB);
    add(ours);
    t.true(holds(await open(ours), ours));
    t.deepEqual(reserved(), []);
    t.deepEqual(readdirSync(join(root, 'partial')), []);
  });

  test(`${form}: what a killed daemon had begun is gone on with, and counts once`, async (t) => {
    const limits = limitsOf(4 * MIB);
    const { root, add, open, cache } = await setUp(t, { root: await newRoot(t), limits });
    const other = await CacheProcess.start(t, { root, limits });
    await other.openHalf('both', 3 * MIB);
    await other.kill();
    const blob = blobOf('both', 3 * MIB);
    add(blob);
    t.true(holds(await open(blob), blob));
    t.is(cache.statistics().use.usedBytes, 3 * MIB);
  });

  test(`${form}: a blob that another daemon has fetched half of is reserved once by all who want it`, async (t) => {
    const limits = limitsOf(4 * MIB);
    const { root, add, open, source } = await setUp(t, { root: await newRoot(t), limits });
    const other = await CacheProcess.start(t, { root, limits });
    const finish = await other.openHalf('both', 3 * MIB);
    const blob = blobOf('both', 3 * MIB);
    add(blob);
    const opening = open(blob);
    t.is(await finish(), undefined);
    t.true(holds(await opening, blob), 'there is no room for two of it');
    t.deepEqual(source.downloads, []);
  });

  test(`${form}: a blob that another daemon holds open is passed over, and waited for no longer than open blobs of our own`, async (t) => {
    const limits = limitsOf(2 * MIB);
    const { root, add, open } = await setUp(t, { root: await newRoot(t), limits });
    const other = await CacheProcess.start(t, { root, limits });
    t.is(await other.open('theirs', MIB), undefined);
    const ours = blobOf('ours', 2 * MIB);
    add(ours);
    t.is(await errnoOf(t, () => open(ours)), 'ENOSPC');
    t.true(existsSync(blobPath(root, blobOf('theirs', MIB))));
    await other.release('theirs');
    t.true(holds(await open(ours), ours));
  });

  test(`${form}: a blob that another daemon has used since keeps its place before those that nobody has`, async (t) => {
    const limits = limitsOf(3 * MIB);
    const { root, add, open } = await setUp(t, { root: await newRoot(t), limits });
    const blobs = ['a', 'b', 'c', 'd'].map((seed) => blobOf(seed, MIB)) as [Blob, Blob, Blob, Blob];
    blobs.forEach(add);
    const [a, b, c, d] = blobs;
    for (const blob of [a, b, c]) (await open(blob)).release();
    // As long ago as that their next use is written down.
    for (const [index, blob] of [a, b, c].entries()) {
      const path = blobPath(root, blob);
      utimesSync(path, new Date(Date.now() - 900_000 + 60_000 * index), statSync(path).mtime);
    }
    const restarted = await setUp(t, { root, limits });
    const another = await setUp(t, { root, limits });
    (await another.open(a)).release();
    await another.cache.close();
    restarted.add(d);
    (await restarted.open(d)).release();
    t.deepEqual(
      blobs.map((blob) => existsSync(blobPath(root, blob))),
      [true, false, true, true],
    );
  });

  test(`${form}: each daemon obeys its own limit`, async (t) => {
    const large = await setUp(t, { root: await newRoot(t), limits: limitsOf(8 * MIB) });
    const small = await setUp(t, { root: large.root, limits: limitsOf(2 * MIB) });
    const blobs = Array.from({ length: 6 }, (_, index) => blobOf(`x${index}`, MIB));
    const ours = blobOf('ours', MIB);
    blobs.forEach(large.add);
    small.add(ours);
    for (const blob of blobs) (await large.open(blob)).release();
    t.is(bytesIn(large.root), 6 * MIB);
    (await small.open(ours)).release();
    t.is(bytesIn(large.root), 2 * MIB);
  });

  test(`${form}: a blob that is deleted by hand and still open counts for every daemon until it is closed`, async (t) => {
    const limits = limitsOf(2 * MIB);
    const holder = await setUp(t, { root: await newRoot(t), limits });
    const other = await setUp(t, { root: holder.root, limits });
    const [held, small, large] = [blobOf('held', MIB), blobOf('small', MIB / 2), blobOf('large', 2 * MIB)];
    [held, small].forEach(holder.add);
    other.add(large);
    const lease = await holder.open(held);
    rmSync(blobPath(holder.root, held));
    // Its daemon comes to know of it.
    (await holder.open(small)).release();
    t.is(holder.cache.statistics().use.usedBytes, 1.5 * MIB);
    t.is(await errnoOf(t, () => other.open(large)), 'ENOSPC');
    t.true(holds(lease, held));
    lease.release();
    t.true(holds(await other.open(large), large));
  });

  test(`${form}: a damaged blob that another daemon holds open is fetched anew; both count until it is closed`, async (t) => {
    const limits = limitsOf(3 * MIB);
    const holder = await setUp(t, { root: await newRoot(t), limits });
    const other = await setUp(t, { root: holder.root, limits });
    const [blob, next] = [blobOf('a', MIB), blobOf('b', 2 * MIB)];
    for (const { add } of [holder, other]) [blob, next].forEach(add);
    const lease = await holder.open(blob);
    rot(holder.root, blob);
    rmSync(proofPath(holder.root, blob));
    const mended = await other.open(blob);
    t.true(holds(mended, blob));
    t.false(holds(lease, blob), 'who has it open keeps what he has');
    t.is(bytesIn(holder.root), 2 * MIB);
    t.is(await errnoOf(t, () => other.open(next)), 'ENOSPC');
    lease.release();
    t.true(holds(await other.open(next), next));
    t.is(bytesIn(holder.root), 3 * MIB);
  });

  test(`${form}: who waits for the lock of another can be called off`, async (t) => {
    const root = await newRoot(t);
    const [first, second] = [new CacheUsage(await BlobStore.open(root)), new CacheUsage(await BlobStore.open(root))];
    const caller = new AbortController();
    await first.exclusively(never, async () => {
      const waiting = second.exclusively(caller.signal, async () => t.fail('two have it'));
      caller.abort(new Error('called off'));
      await t.throwsAsync(waiting);
    });
    await t.notThrowsAsync(second.exclusively(never, async () => undefined));
  });

  test(`${form}: one has the lock at a time`, async (t) => {
    const root = await newRoot(t);
    let inside = 0;
    let count = 0;
    await Promise.all(
      Array.from({ length: 6 }, async () => {
        const usage = new CacheUsage(await BlobStore.open(root));
        for (let turn = 0; turn < 10; turn += 1) {
          await usage.exclusively(never, async () => {
            inside += 1;
            t.is(inside, 1);
            await setImmediate();
            inside -= 1;
            count += 1;
          });
        }
      }),
    );
    t.is(count, 60);
  });
}

test('that flock does not work is said once, with what it means', async (t) => {
  const root = temporaryFolder(t);
  const quiet = await setUp(t, { root });
  t.deepEqual(quiet.lines, []);
  mkdirSync((await BlobStore.open(root)).layout.lockOwners, { recursive: true });
  const { lines } = await setUp(t, { root });
  t.is(lines.length, 1);
  t.like(lines[0], { level: 40, cache: root });
  t.regex(String(lines[0]?.['msg']), /flock does not work, .* may be evicted/);
});

const noLocks: Record<string, number> = {
  'does nothing': 0,
  'fails with ENOSYS': 38,
  'fails with ENOLCK': 37,
  'fails with EOPNOTSUPP': 95,
};
for (const [what, errno] of Object.entries(noLocks)) {
  test(`where flock ${what}, daemons keep each other from what they hold and reserve`, async (t) => {
    const limits = limitsOf(4 * MIB);
    const root = temporaryFolder(t);
    const wrapper = [packagePath('test', 'support', 'without-flock'), String(errno)];
    const [first, second] = await Promise.all([1, 2].map(() => CacheProcess.start(t, { root, limits }, wrapper)));
    if (first === undefined || second === undefined) return t.fail();
    t.is(await first.open('a', 2 * MIB), undefined);
    t.is(await second.open('b', 3 * MIB), 'ENOSPC');
    t.true(existsSync(blobPath(root, blobOf('a', 2 * MIB))));
    await second.openHalf('c', 2 * MIB);
    await first.release('a');
    const opening = first.open('d', 4 * MIB);
    await looks(root, 3);
    t.deepEqual(readdirSync(join(root, 'partial')).length, 1);
    await second.kill();
    t.is(await opening, undefined);
    t.is(bytesIn(root), 4 * MIB);
  });
}
