import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { TmaxError } from '../../src/errors.js';
import { type Blob, blobOf, blobPath, errnoOf, holds, setUp, TestSource } from '../support/blob-cache.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;

test('a blob is fetched by its first open, and found on disk by the second', async (t) => {
  const { source, cache, add, open, root } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  const first = await open(blob);
  t.true(holds(first, blob));
  t.is(statSync(blobPath(root, blob)).mode & 0o777, 0o444);
  const second = cache.open(blob.address, { variant: 'v', task: 'a' }, new AbortController().signal);
  t.false(second instanceof Promise, 'a ready blob is leased at once');
  t.deepEqual(source.downloads, ['a.sif']);
  t.deepEqual(readdirSync(join(root, 'partial')), []);
});

test('many opens of one absent blob are one fetch', async (t) => {
  const { source, cache, add, open } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  const leases = await Promise.all(Array.from({ length: 100 }, () => open(blob)));
  t.is(new Set(leases.map(({ descriptor }) => descriptor)).size, 1);
  t.deepEqual(source.downloads, ['a.sif']);
  t.is(cache.statistics().use.leasedBlobs, 1);
  for (const lease of leases) lease.release();
  t.is(cache.statistics().use.leasedBlobs, 0);
});

test('an open whose caller is gone ends at once with EINTR; the others and the fetch go on', async (t) => {
  const { source, cache, add, open } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  let openGate = () => {};
  source.gate = new Promise((resolve) => {
    openGate = resolve;
  });
  const caller = new AbortController();
  const [leaving, staying] = [open(blob, caller.signal), open(blob)];
  await once(source, 'download');
  caller.abort();
  t.is(await errnoOf(t, () => leaving), 'EINTR');
  t.is(cache.statistics().flights[0]?.waiters, 1);
  openGate();
  t.true(holds(await staying, blob));
});

test('an open that waits too long is ETIMEDOUT, and the next one finds what the fetch brought', async (t) => {
  const { source, add, open, cache } = await setUp(t, { openTimeoutMs: 20 });
  const blob = blobOf('a');
  add(blob);
  let openGate = () => {};
  source.gate = new Promise((resolve) => {
    openGate = resolve;
  });
  const [errno] = await Promise.all([errnoOf(t, () => open(blob)), once(source, 'download')]);
  t.is(errno, 'ETIMEDOUT');
  t.is(cache.state(blob.address.sha256).state, 'fetching');
  openGate();
  while (cache.state(blob.address.sha256).state !== 'ready') await new Promise(setImmediate);
  t.true(holds(await open(blob), blob));
  t.is(source.downloads.length, 1);
});

test('bytes with the wrong digest are fetched once more, then refused; half a minute long without a further fetch', async (t) => {
  const { source, cache, open, root } = await setUp(t);
  const blob = blobOf('a');
  source.contents.set(blob.address.sha256, Buffer.alloc(1000, 'wrong'));
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  t.is(source.downloads.length, 2);
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  t.is(source.downloads.length, 2);
  t.false(existsSync(blobPath(root, blob)));
  const state = cache.state(blob.address.sha256);
  t.is(state.state === 'quarantined' ? state.record.code : state.state, 'sha256-mismatch');
});

test('a digest that is right the second time is no failure', async (t) => {
  const { source, cache, open } = await setUp(t);
  const blob = blobOf('a');
  source.contents.set(blob.address.sha256, Buffer.alloc(1000, 'wrong'));
  source.once('download', () => source.once('download', () => source.contents.set(blob.address.sha256, blob.content)));
  t.true(holds(await open(blob), blob));
  t.is(cache.statistics().quarantine.length, 0);
});

test('an image that is what the listing says and yet broken is refused for good, also after a restart', async (t) => {
  const { source, verdicts, add, open, root, cache } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  verdicts.reason = 'no superblock';
  const error = await t.throwsAsync(open(blob), { instanceOf: TmaxError });
  t.is(error?.errno, 'EBADMSG');
  t.regex(error?.message ?? '', /a\.sif.*no superblock/);
  t.is(source.downloads.length, 1, 'a second fetch would bring the same bytes');
  t.deepEqual(
    readdirSync(join(root, 'partial')).map((name) => statSync(join(root, 'partial', name)).size),
    [0],
  );
  await cache.close();

  const restarted = await setUp(t, { root });
  restarted.add(blob);
  t.is(await errnoOf(t, () => restarted.open(blob)), 'EBADMSG');
  t.is(restarted.source.downloads.length, 0);
  const nextCommit = { ...blob, address: { ...blob.address, commit: 'd'.repeat(40) } };
  t.true(holds(await restarted.open(nextCommit), blob), 'another commit is another chance');
});

test('the second source is asked where the first has wrong bytes or none', async (t) => {
  const [liar, dead, honest] = [new TestSource('liar'), new TestSource('dead'), new TestSource('honest')];
  dead.failure = new TmaxError('EHOSTUNREACH', 'no answer');
  const { open, cache } = await setUp(t, { sources: [liar, dead, honest] });
  const blob = blobOf('a');
  liar.contents.set(blob.address.sha256, Buffer.alloc(1000));
  honest.contents.set(blob.address.sha256, blob.content);
  t.true(holds(await open(blob), blob));
  t.is(cache.statistics().quarantine.length, 0, 'what was proven after all is not refused any more');
});

test('a source’s own failure is the open’s errno, and the next open tries again', async (t) => {
  const { source, add, open } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  source.failure = new TmaxError('EHOSTUNREACH', 'no answer');
  t.is(await errnoOf(t, () => open(blob)), 'EHOSTUNREACH');
  source.failure = undefined;
  t.true(holds(await open(blob), blob));
});

test('offline, what is on disk is served and the rest is EHOSTUNREACH at once', async (t) => {
  const online = await setUp(t);
  const [here, absent] = [blobOf('a'), blobOf('b')];
  online.add(here);
  (await online.open(here)).release();
  await online.cache.close();
  const { open } = await setUp(t, { root: online.root, sources: [] });
  t.true(holds(await open(here), here));
  const error = await t.throwsAsync(open(absent), { instanceOf: TmaxError });
  t.is(error?.errno, 'EHOSTUNREACH');
  t.regex(error?.message ?? '', /offline/);
});

test('room is made by evicting what was used longest ago', async (t) => {
  const { add, open, cache } = await setUp(t, { limits: { limitBytes: 3 * MIB, reserveFreeBytes: 0 } });
  const blobs = ['a', 'b', 'c', 'd'].map((seed) => blobOf(seed, MIB));
  blobs.forEach(add);
  const [a, b, c, d] = blobs as [Blob, Blob, Blob, Blob];
  for (const blob of [a, b, c, a]) (await open(blob)).release();
  (await open(d)).release();
  t.deepEqual(
    blobs.map(({ address }) => cache.state(address.sha256).state),
    ['ready', 'absent', 'ready', 'ready'],
  );
  t.true(cache.statistics().use.usedBytes <= 3 * MIB);
});

test('a blob that is held open is never evicted; with nothing else to evict the open is ENOSPC and names the numbers', async (t) => {
  const { add, open, root } = await setUp(t, { limits: { limitBytes: 2 * MIB, reserveFreeBytes: 0 } });
  const [held, more] = [blobOf('a', MIB), blobOf('b', MIB + 1)];
  [held, more].forEach(add);
  const lease = await open(held);
  const error = await t.throwsAsync(open(more), { instanceOf: TmaxError });
  t.is(error?.errno, 'ENOSPC');
  t.true(error?.message.includes(String(MIB + 1)) && error.message.includes(String(2 * MIB)), error?.message);
  t.true(existsSync(blobPath(root, held)));
  lease.release();
  t.true(holds(await open(more), more));
  t.false(existsSync(blobPath(root, held)));
});

test('a blob larger than the cache is ENOSPC before a byte is fetched, and evicts nothing', async (t) => {
  const { add, open, source, root } = await setUp(t, { limits: { limitBytes: MIB, reserveFreeBytes: 0 } });
  const [small, large] = [blobOf('a', 1000), blobOf('b', MIB + 1)];
  [small, large].forEach(add);
  (await open(small)).release();
  t.is(await errnoOf(t, () => open(large)), 'ENOSPC');
  t.deepEqual(source.downloads, ['a.sif']);
  t.true(existsSync(blobPath(root, small)));
});

test('the free-space reserve of the disk is left alone', async (t) => {
  const { add, open } = await setUp(t, {
    limits: { limitBytes: 100 * MIB, reserveFreeBytes: Number.MAX_SAFE_INTEGER },
  });
  const blob = blobOf('a');
  add(blob);
  t.is(await errnoOf(t, () => open(blob)), 'ENOSPC');
});

test('concurrent fetches never count on the same room', async (t) => {
  const limitBytes = 8 * MIB;
  const { add, open, cache } = await setUp(t, { limits: { limitBytes, reserveFreeBytes: 0 } });
  const blobs = Array.from({ length: 20 }, (_, index) => blobOf(`x${index}`, MIB));
  blobs.forEach(add);
  await Promise.all(
    blobs.map(async (blob) => {
      const lease = await open(blob);
      t.true(cache.statistics().use.usedBytes <= limitBytes);
      t.true(holds(lease, blob));
      lease.release();
    }),
  );
});

test('a restart finds the blobs again, in the order of their last use', async (t) => {
  const before = await setUp(t);
  const [old, recent] = [blobOf('old', MIB), blobOf('recent', MIB)];
  [old, recent].forEach(before.add);
  for (const blob of [old, recent]) (await before.open(blob)).release();
  await before.cache.close();
  const modified = statSync(blobPath(before.root, old)).mtime;
  utimesSync(blobPath(before.root, old), new Date(1000), modified);

  const limits = { limitBytes: 2 * MIB, reserveFreeBytes: 0 };
  const { cache, open, add, source } = await setUp(t, { root: before.root, limits });
  t.is(cache.statistics().use.idleBlobs, 2);
  const further = blobOf('new', MIB);
  add(further);
  await open(further);
  t.is(cache.state(old.address.sha256).state, 'absent');
  await open(recent);
  t.deepEqual(source.downloads, ['new.sif']);
});

test('a start with a smaller limit evicts down to it', async (t) => {
  const before = await setUp(t);
  const blobs = ['a', 'b', 'c'].map((seed) => blobOf(seed, MIB));
  blobs.forEach(before.add);
  for (const blob of blobs) (await before.open(blob)).release();
  await before.cache.close();
  const { cache } = await setUp(t, { root: before.root, limits: { limitBytes: 2 * MIB, reserveFreeBytes: 0 } });
  t.is(cache.statistics().use.usedBytes, 2 * MIB);
});

const tampering: Record<string, (path: string) => void> = {
  'was cut short': (path) => truncateSync(path, 10),
  'was rewritten': (path) => writeFileSync(path, Buffer.alloc(1000, 'evil')),
};
for (const [what, act] of Object.entries(tampering)) {
  test(`a blob that ${what} behind the cache’s back is not served, but fetched anew`, async (t) => {
    const { add, open, source, root } = await setUp(t);
    const blob = blobOf('a');
    add(blob);
    (await open(blob)).release();
    const path = blobPath(root, blob);
    chmodSync(path, 0o644);
    act(path);
    utimesSync(path, new Date(), new Date(5000));
    t.true(holds(await open(blob), blob));
    t.is(source.downloads.length, 2);
  });
}

test('a blob without its proof, or with a shallower one, is proven again before it is served', async (t) => {
  const { add, open, root, cache, verdicts } = await setUp(t, { level: 'header' });
  const blob = blobOf('a');
  add(blob);
  (await open(blob)).release();
  t.is(verdicts.calls.length, 1);
  await cache.close();

  const deeper = await setUp(t, { root, level: 'deep' });
  deeper.add(blob);
  (await deeper.open(blob)).release();
  t.deepEqual(deeper.verdicts.calls, [blobPath(root, blob)]);
  await deeper.cache.close();

  rmSync(join(root, 'proofs'), { recursive: true });
  const without = await setUp(t, { root, level: 'header' });
  without.add(blob);
  (await without.open(blob)).release();
  t.is(without.verdicts.calls.length, 1);
  t.deepEqual([...deeper.source.downloads, ...without.source.downloads], [], 'what is on disk is not fetched again');
});

test('a blob that vanished from the disk is fetched anew', async (t) => {
  const { add, open, source, root } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  (await open(blob)).release();
  rmSync(blobPath(root, blob));
  t.true(holds(await open(blob), blob));
  t.is(source.downloads.length, 2);
});

test('two caches on one directory make one fetch, and neither evicts what the other holds', async (t) => {
  const limits = { limitBytes: 2 * MIB, reserveFreeBytes: 0 };
  const first = await setUp(t, { limits });
  const second = await setUp(t, { root: first.root, limits });
  const [shared, other] = [blobOf('shared', MIB), blobOf('other', 2 * MIB)];
  for (const { add } of [first, second]) [shared, other].forEach(add);
  const [lease] = await Promise.all([first.open(shared), second.open(shared)]);
  t.is(first.source.downloads.length + second.source.downloads.length, 1);
  t.is(await errnoOf(t, () => first.open(other)), 'ENOSPC');
  t.true(holds(lease, shared));
});

test('what is no blob is removed from blobs/ and partial/, links are not followed', async (t) => {
  const root = temporaryFolder(t);
  const outside = temporaryFolder(t);
  writeFileSync(join(outside, 'precious'), 'x');
  const name = 'ab'.repeat(32);
  mkdirSync(join(root, 'blobs', 'ab'), { recursive: true });
  mkdirSync(join(root, 'partial'));
  symlinkSync(join(outside, 'precious'), join(root, 'blobs', 'ab', name));
  symlinkSync(outside, join(root, 'blobs', 'cd'));
  writeFileSync(join(root, 'blobs', 'ab', 'stray'), 'x');
  symlinkSync(join(outside, 'precious'), join(root, 'partial', name));
  const { cache } = await setUp(t, { root });
  t.is(cache.statistics().use.usedBytes, 0);
  t.deepEqual(readdirSync(join(root, 'blobs')), ['ab']);
  t.deepEqual(readdirSync(join(root, 'blobs', 'ab')), []);
  t.deepEqual(readdirSync(join(root, 'partial')), []);
  t.deepEqual(readdirSync(outside), ['precious']);
});

test('partial files count, and are the first to go when room is needed', async (t) => {
  const root = temporaryFolder(t);
  mkdirSync(join(root, 'partial'));
  writeFileSync(join(root, 'partial', 'ab'.repeat(32)), Buffer.alloc(MIB));
  const { cache, add, open } = await setUp(t, { root, limits: { limitBytes: 2 * MIB, reserveFreeBytes: 0 } });
  t.is(cache.statistics().use.usedBytes, MIB);
  const blob = blobOf('a', 2 * MIB);
  add(blob);
  t.true(holds(await open(blob), blob));
  t.deepEqual(readdirSync(join(root, 'partial')), []);
});

test('a cache directory that everyone can write into is refused', async (t) => {
  const root = temporaryFolder(t);
  chmodSync(root, 0o777);
  t.is(await errnoOf(t, () => BlobStore.open(root)), 'EPERM');
});

test('closing ends the fetches that are under way', async (t) => {
  const { source, cache, open } = await setUp(t);
  source.gate = new Promise(() => {});
  const opening = open(blobOf('a'));
  await once(source, 'download');
  const outcome = errnoOf(t, () => opening);
  await cache.close();
  t.is(await outcome, 'EINTR');
});
