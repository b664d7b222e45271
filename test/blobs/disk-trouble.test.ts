/** What the cache makes of a disk that fails in small; real disks that fail are in test/end-to-end. */

import { existsSync, openSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { TmaxError } from '../../src/errors.js';
import { flock } from '../../src/libc.js';
import { blobOf, blobPath, errnoOf, holds, proofPath, rot, setUp, TestSource } from '../support/blob-cache.js';
import { temporaryFolder } from '../support/temporary.js';

/** Writes the first half of what it is asked for, and then fails. */
class HalfSource extends TestSource {
  override async download(...[address, path]: Parameters<TestSource['download']>): Promise<never> {
    this.downloads.push(address.path);
    writeFileSync(path, Buffer.alloc(address.sizeBytes / 2));
    throw this.failure;
  }
}

for (const [errno, source, left] of [
  ['EHOSTUNREACH', 'hub', 1],
  ['EIO', 'hub', 1],
  ['EIO', 'cache', 0],
] as const) {
  test(`what a fetch that ended in ${errno} of the ${source} has left is ${left === 1 ? 'kept for the next' : 'thrown away'}`, async (t) => {
    const half = new HalfSource();
    half.failure = new TmaxError(errno, 'failed', { source });
    const { open, root, cache } = await setUp(t, { sources: [half] });
    await errnoOf(t, () => open(blobOf('a', 100_000)));
    t.is(readdirSync(join(root, 'partial')).length, left);
    t.is(cache.statistics().use.usedBytes > 0, left === 1, 'it counts as long as it is there');
    t.is(cache.statistics().use.reservedBytes, 0);
  });
}

test('what the disk could not give back to be proven is thrown away', async (t) => {
  const { add, open, root, verdicts } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  verdicts.failure = new TmaxError('EIO', 'unreadable', { source: 'verify' });
  t.is(await errnoOf(t, () => open(blob)), 'EIO');
  t.deepEqual(readdirSync(join(root, 'partial')), []);
});

test('a disk that fails is not asked once more through the next source', async (t) => {
  const half = new HalfSource();
  half.failure = new TmaxError('EIO', 'failed', { source: 'cache' });
  const next = new TestSource('next');
  const { open } = await setUp(t, { sources: [half, next] });
  t.is(await errnoOf(t, () => open(blobOf('a'))), 'EIO');
  t.deepEqual(next.downloads, []);
});

test('a blob found damaged is not served, even where the disk does not let its proof be removed', async (t) => {
  const { add, open, root, cache } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  (await open(blob)).release();
  await readOnly(t, join(root, 'proofs'));
  rot(root, blob);
  const damaged = { code: 'sha256-mismatch', message: 'rotten' };
  await t.throwsAsync(cache.drop(blob.address.sha256, damaged), { code: 'EROFS' });
  t.true(existsSync(proofPath(root, blob)));
  t.is(cache.state(blob.address.sha256).state, 'unproven');
  t.is(await errnoOf(t, () => open(blob)), 'EIO');
});

/** Makes a folder read-only, for root too. */
async function readOnly(t: ExecutionContext, folder: string): Promise<void> {
  await execa('mount', ['--bind', folder, folder]);
  t.teardown(() => execa('umount', ['--lazy', folder]));
  await execa('mount', ['-o', 'remount,bind,ro', folder]);
}

test('one blob that can’t be removed does not keep others from making room', async (t) => {
  const limits = { limitBytes: 3 * 2 ** 20, reserveFreeBytes: 0, leasePatienceMs: 20 };
  const { add, open, root } = await setUp(t, { limits });
  const [stuck, next, wanted] = ['a', 'b', 'c'].map((seed) => blobOf(seed, 2 ** 20 + 5000));
  if (stuck === undefined || next === undefined || wanted === undefined) return t.fail();
  [stuck, next, wanted].forEach(add);
  for (const blob of [stuck, next]) (await open(blob)).release();
  await readOnly(t, join(blobPath(root, stuck), '..'));
  t.true(holds(await open(wanted), wanted));
  t.true(existsSync(blobPath(root, stuck)));
  t.false(existsSync(blobPath(root, next)));
});

test('a partial file that another process has taken over is not published', async (t) => {
  const store = await BlobStore.open(temporaryFolder(t));
  const sha256 = 'ab'.repeat(32);
  const partial = await store.partials.lock(sha256);
  if (partial === undefined) return t.fail();
  // As in the moment in which the kernel turns one lock into the other.
  flock(partial.handle.fd, 'unlock');
  t.true(flock(openSync(partial.path, 'r'), 'exclusiveNonBlocking'));
  const now = new Date().toISOString();
  const proof = { sha256, sizeBytes: 0, level: 'header', verifierVersion: 1, provenAt: now, checkedAt: now } as const;
  t.false(await store.publish(sha256, partial, { ...proof, architecture: 'amd64', source: 'test' }));
  t.false(existsSync(store.layout.blob(sha256)));
  t.true(existsSync(partial.path));
  await partial.handle.close();
});
