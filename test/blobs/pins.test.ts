/** What is pinned stays, whoever evicts; what is evicted by name goes, unless somebody has it. */

import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { TmaxError } from '../../src/errors.js';
import { type Blob, blobOf, blobPath, errnoOf, holds, setUp } from '../support/blob-cache.js';
import { temporaryFolder } from '../support/temporary.js';

const SIZE = 1000;
const TWO_BLOBS = { limitBytes: 2 * SIZE, reserveFreeBytes: 0, leasePatienceMs: 20 };
const [A, B, C] = ['a', 'b', 'c'].map((seed) => blobOf(seed, SIZE)) as [Blob, Blob, Blob];
const sha = ({ address }: Blob) => address.sha256;

async function setUpWith(t: Parameters<typeof setUp>[0], blobs: readonly Blob[], root?: string) {
  const parts = await setUp(t, { limits: TWO_BLOBS, ...(root === undefined ? {} : { root }) });
  for (const blob of [A, B, C]) parts.add(blob);
  for (const blob of blobs) (await parts.open(blob)).release();
  const isOnDisk = (blob: Blob) => existsSync(blobPath(parts.root, blob));
  return { ...parts, isOnDisk };
}

test('a pinned blob is not evicted, though used longest ago; unpinned, it is', async (t) => {
  const { cache, open, isOnDisk } = await setUpWith(t, [A, B]);
  await cache.pin([sha(A)]);
  t.true(cache.isPinned(sha(A)));
  (await open(C)).release();
  t.deepEqual([A, B, C].map(isOnDisk), [true, false, true]);
  await cache.unpin([sha(A)]);
  t.false(cache.isPinned(sha(A)));
  (await open(B)).release();
  t.deepEqual([A, B, C].map(isOnDisk), [false, true, true]);
});

test('a pin is kept over a restart, counts for every process on the directory, and can be set before the blob is there', async (t) => {
  const first = await setUpWith(t, [A]);
  await first.cache.pin([sha(A), sha(B)]);
  t.deepEqual(await first.cache.pinned(), { blobs: 1, bytes: SIZE, absentBlobs: 1 });
  const second = await setUpWith(t, [B], first.root);
  t.deepEqual(await second.cache.pinned(), { blobs: 2, bytes: 2 * SIZE, absentBlobs: 0 });
  t.is(await errnoOf(t, () => second.open(C)), 'ENOSPC');
  t.deepEqual([A, B, C].map(second.isOnDisk), [true, true, false]);
});

test('a start with a smaller limit evicts what is not pinned', async (t) => {
  const { cache, root, isOnDisk } = await setUpWith(t, [A, B]);
  await cache.pin([sha(A)]);
  await setUp(t, { root, limits: { ...TWO_BLOBS, limitBytes: SIZE } });
  t.deepEqual([A, B].map(isOnDisk), [true, false]);
});

test('where pins leave no room, an open and a prefetch are told how much is pinned, and what to do', async (t) => {
  const { cache, open } = await setUpWith(t, [A, B]);
  await cache.pin([sha(A), sha(B)]);
  const error = await t.throwsAsync(open(C), { instanceOf: TmaxError });
  t.is(error.errno, 'ENOSPC');
  t.regex(error.message, /0 are held open, 0 are being fetched and 2000 are pinned; .* unpin some \(tmaxfs unpin\)/);
  const wanted = new Map([[sha(C), C.address]]);
  const refused = await t.throwsAsync(cache.checkFits(wanted), { instanceOf: TmaxError });
  t.regex(refused.message, /of which 2000 are pinned, held open or being fetched for others/);
  await cache.unpin([sha(B)]);
  await t.notThrowsAsync(cache.checkFits(wanted));
  (await open(C)).release();
});

test('a blob that is leased while its pin is set counts once, and stays after its release', async (t) => {
  const { cache, open, isOnDisk } = await setUpWith(t, [A]);
  const lease = await open(A);
  await cache.pin([sha(A)]);
  (await open(B)).release();
  lease.release();
  (await open(C)).release();
  t.deepEqual([A, B, C].map(isOnDisk), [true, false, true]);
});

test('a damaged blob is fetched anew although it is pinned, and is pinned still', async (t) => {
  const { cache, source, open, isOnDisk } = await setUpWith(t, [A]);
  await cache.pin([sha(A)]);
  await cache.drop(sha(A), { code: 'test', message: 'bit rot' });
  t.false(isOnDisk(A));
  t.true(holds(await open(A), A));
  t.is(source.downloads.length, 2);
  t.true(cache.isPinned(sha(A)));
});

test('what is evicted by name is gone from disk and from the account; what was not there is told', async (t) => {
  const { cache, open, isOnDisk } = await setUpWith(t, [A, B]);
  t.is(await cache.evict(sha(A)), 'evicted');
  t.false(isOnDisk(A));
  t.like(cache.statistics(), { evicted: 1, use: { usedBytes: SIZE, idleBlobs: 1 } });
  t.is(cache.state(sha(A)).state, 'absent');
  t.is(await cache.evict(sha(A)), 'absent');
  t.true(holds(await open(A), A), 'it is fetched anew');
});

test('what is open, pinned, being fetched or held by another process is not evicted', async (t) => {
  const { cache, open, root, source, isOnDisk } = await setUpWith(t, [A, B]);
  const lease = await open(A);
  t.is(await cache.evict(sha(A)), 'open');
  lease.release();
  await cache.pin([sha(A)]);
  t.is(await cache.evict(sha(A)), 'pinned');
  const other = await setUp(t, { root });
  const held = await other.open(B);
  t.is(await cache.evict(sha(B)), 'in use elsewhere');
  held.release();
  t.is(await cache.evict(sha(B)), 'evicted');
  let letGo = () => {};
  source.gate = new Promise((resolve) => {
    letGo = resolve;
  });
  const opening = open(C);
  await new Promise((resolve) => source.once('download', resolve));
  t.is(await cache.evict(sha(C)), 'fetching');
  letGo();
  (await opening).release();
  t.deepEqual([A, B, C].map(isOnDisk), [true, false, true]);
});

test('a blob that gets its pin while it is being evicted stays, or is known to be gone', async (t) => {
  const { root } = await setUpWith(t, [A]);
  const store = await BlobStore.open(root);
  // The pin is set in the very moment in which the evicting process has the blob's lock.
  const kept = await store.remove(sha(A), () => {
    mkdirSync(join(root, 'pins', sha(A)));
    t.false(store.isThere(sha(A)), 'nobody counts on it meanwhile');
    return store.pins.has(sha(A));
  });
  t.false(kept);
  t.true(store.isThere(sha(A)));
  await store.pins.remove([sha(A)]);
  t.false(store.pins.has(sha(A)), 'whatever lies there');
});

test('without the folder nothing is pinned, and a pin makes it anew', async (t) => {
  const root = temporaryFolder(t);
  const { pins } = await BlobStore.open(root);
  rmSync(join(root, 'pins'), { recursive: true });
  t.deepEqual([...(await pins.list())], []);
  await pins.remove([sha(A)]);
  await pins.add([sha(A), sha(A)]);
  t.deepEqual([...(await pins.list())], [sha(A)]);
});
