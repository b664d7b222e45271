import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import { BlobStore } from '../../src/blobs/blob-store.js';
import type { CapacityLimits } from '../../src/blobs/capacity.js';
import { TmaxError } from '../../src/errors.js';
import { type Blob, blobOf, blobPath, errnoOf, holds, proofPath, setUp, TestSource } from '../support/blob-cache.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;

/** Open blobs are not waited for at length. */
function limitsOf(limitBytes: number, reserveFreeBytes = 0): CapacityLimits {
  return { limitBytes, reserveFreeBytes, leasePatienceMs: 20 };
}

/** The quarantine record of a blob, as another verifier at another level would have left it. */
function recordOf(root: string, { address }: Blob, verifierVersion: number, level: string): string {
  const record: unknown = JSON.parse(readFileSync(join(root, 'quarantine', `${address.sha256}.json`), 'utf8'));
  return JSON.stringify({ ...(record as object), verifierVersion, level });
}

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
  const { add, open, cache } = await setUp(t, { limits: limitsOf(3 * MIB) });
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
  const { add, open, root } = await setUp(t, { limits: limitsOf(2 * MIB) });
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
  const { add, open, source, root } = await setUp(t, { limits: limitsOf(MIB) });
  const [small, large] = [blobOf('a', 1000), blobOf('b', MIB + 1)];
  [small, large].forEach(add);
  (await open(small)).release();
  t.is(await errnoOf(t, () => open(large)), 'ENOSPC');
  t.deepEqual(source.downloads, ['a.sif']);
  t.true(existsSync(blobPath(root, small)));
});

test('the free-space reserve of the disk is left alone', async (t) => {
  const { add, open } = await setUp(t, {
    limits: limitsOf(100 * MIB, Number.MAX_SAFE_INTEGER),
  });
  const blob = blobOf('a');
  add(blob);
  t.is(await errnoOf(t, () => open(blob)), 'ENOSPC');
});

test('concurrent fetches never count on the same room', async (t) => {
  const limitBytes = 8 * MIB;
  const { add, open, cache } = await setUp(t, { limits: limitsOf(limitBytes) });
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

test('a fetch that waits for room is queued, and may give way like others that are', async (t) => {
  const { add, cache, open, source, store } = await setUp(t, { limits: limitsOf(MIB), maxFetches: 2 });
  const [first, second] = [blobOf('first', MIB), blobOf('second', MIB)];
  [first, second].forEach(add);
  let letGo = () => {};
  source.gate = new Promise((resolve) => {
    letGo = resolve;
  });
  const opening = open(first);
  await once(source, 'download');
  const looksForRoom = new Promise<void>((resolve) => {
    const { list } = store.pins;
    store.pins.list = () => {
      resolve();
      return list.call(store.pins);
    };
  });
  const controller = new AbortController();
  const bringing = cache.bring(second.address, { variant: 'v', task: 's' }, controller.signal, new Set());
  await looksForRoom;
  t.is(cache.state(second.address.sha256).state, 'queued');
  controller.abort();
  await t.throwsAsync(bringing, { instanceOf: TmaxError });
  letGo();
  (await opening).release();
});

test('a restart finds the blobs again, in the order of their last use', async (t) => {
  const before = await setUp(t);
  const [old, recent] = [blobOf('old', MIB), blobOf('recent', MIB)];
  [old, recent].forEach(before.add);
  for (const blob of [old, recent]) (await before.open(blob)).release();
  await before.cache.close();
  const modified = statSync(blobPath(before.root, old)).mtime;
  utimesSync(blobPath(before.root, old), new Date(1000), modified);

  const limits = limitsOf(2 * MIB);
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
  const { cache } = await setUp(t, { root: before.root, limits: limitsOf(2 * MIB) });
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
  const limits = limitsOf(2 * MIB);
  const first = await setUp(t, { limits });
  const second = await setUp(t, { root: first.root, limits });
  const [shared, other] = [blobOf('shared', MIB), blobOf('other', 2 * MIB)];
  for (const { add } of [first, second]) [shared, other].forEach(add);
  const [lease] = await Promise.all([first.open(shared), second.open(shared)]);
  t.is(first.source.downloads.length + second.source.downloads.length, 1);
  t.is(await errnoOf(t, () => first.open(other)), 'ENOSPC');
  t.true(holds(lease, shared));
});

test('a blob that another process publishes right before its lock is free is not fetched again', async (t) => {
  const first = await setUp(t);
  const second = await setUp(t, { root: first.root });
  const blob = blobOf('a');
  for (const { add } of [first, second]) add(blob);
  const lock = second.store.partials.lock.bind(second.store.partials);
  second.store.partials.lock = async (sha256) => {
    (await first.open(blob)).release();
    return lock(sha256);
  };
  t.true(holds(await second.open(blob), blob));
  t.deepEqual(second.source.downloads, []);
  t.deepEqual(readdirSync(join(first.root, 'partial')), []);
});

test('what is no blob is removed from blobs/ and partial/, links are not followed', async (t) => {
  const root = temporaryFolder(t);
  const outside = temporaryFolder(t);
  writeFileSync(join(outside, 'precious'), 'x');
  const name = 'ab'.repeat(32);
  await BlobStore.open(root);
  mkdirSync(join(root, 'blobs', 'ab'));
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

test('a start removes what a kill has left of proofs and records, once nobody can be writing it', async (t) => {
  const before = await setUp(t);
  const [kept, gone] = [blobOf('kept'), blobOf('gone')];
  [kept, gone].forEach(before.add);
  for (const blob of [kept, gone]) (await before.open(blob)).release();
  await before.cache.close();
  // Killed between removing a blob and removing its proof.
  rmSync(blobPath(before.root, gone));
  const temporary = `${'ab'.repeat(6)}.tmp`;
  const left = [
    `${proofPath(before.root, kept)}.${temporary}`,
    join(before.root, 'quarantine', `x.json.${temporary}`),
    join(before.root, `CACHEDIR.TAG.${temporary}`),
  ];
  for (const path of left) writeFileSync(path, '');
  await (await setUp(t, { root: before.root })).cache.close();
  t.true(
    [...left, proofPath(before.root, gone)].every((path) => existsSync(path)),
    'another process may be at it',
  );
  const anHourAgo = new Date(Date.now() - 3_600_000);
  const proofs = [proofPath(before.root, gone), proofPath(before.root, kept)];
  for (const path of [...left, ...proofs]) utimesSync(path, anHourAgo, anHourAgo);
  const after = await setUp(t, { root: before.root });
  t.deepEqual(
    [...left, ...proofs].map((path) => existsSync(path)),
    [false, false, false, false, true],
  );
  t.true(holds(await after.open(kept), kept));
});

test('partial files count, and are the first to go when room is needed', async (t) => {
  const root = temporaryFolder(t);
  await BlobStore.open(root);
  writeFileSync(join(root, 'partial', 'ab'.repeat(32)), Buffer.alloc(MIB));
  const { cache, add, open } = await setUp(t, { root, limits: limitsOf(2 * MIB) });
  t.is(cache.statistics().use.usedBytes, MIB);
  const blob = blobOf('a', 2 * MIB);
  add(blob);
  t.true(holds(await open(blob), blob));
  t.deepEqual(readdirSync(join(root, 'partial')), []);
});

for (const mode of [0o777, 0o775, 0o757]) {
  for (const folder of ['', 'blobs', 'proofs', 'catalog']) {
    test(`a cache directory whose ${folder || 'root'} others can write into (${mode.toString(8)}) is refused`, async (t) => {
      const root = temporaryFolder(t);
      await BlobStore.open(root);
      chmodSync(join(root, folder), mode);
      const error = await t.throwsAsync(BlobStore.open(root), { instanceOf: TmaxError });
      t.is(error?.errno, 'EPERM');
      t.true(error?.message.includes(`chmod go-w ${join(root, folder)}`), error?.message);
    });
  }
}

for (const folder of ['', 'blobs', 'pins']) {
  test(`a cache directory whose ${folder || 'root'} is another user's is refused, and named as a source`, async (t) => {
    const root = temporaryFolder(t);
    await BlobStore.open(root);
    const other = (process.getuid?.() ?? 0) + 1;
    chownSync(join(root, folder), other, other);
    const error = await t.throwsAsync(BlobStore.open(root), { instanceOf: TmaxError });
    t.is(error?.errno, 'EPERM');
    t.true(error?.message.includes(`${join(root, folder)} belongs to user ${other}`), error?.message);
    t.true(error?.message.includes(`--source dir:${root} takes`), error?.message);
  });
}

test('a folder that holds other things is no cache: it is refused, and nothing in it is touched', async (t) => {
  const root = temporaryFolder(t);
  for (const folder of ['blobs/2024', 'partial', 'quarantine']) mkdirSync(join(root, folder), { recursive: true });
  const precious = ['blobs/2024/thesis.tex', 'partial/notes', 'quarantine/list.txt'];
  for (const name of precious) writeFileSync(join(root, name), 'x');
  t.is(await errnoOf(t, () => BlobStore.open(root)), 'EEXIST');
  t.true(precious.every((name) => existsSync(join(root, name))));
});

test('two daemons may make one new cache directory at one time', async (t) => {
  const root = join(temporaryFolder(t), 'cache');
  await Promise.all(Array.from({ length: 8 }, () => BlobStore.open(root)));
  t.regex(readFileSync(join(root, 'CACHEDIR.TAG'), 'utf8'), /^Signature: 8a477f597d28d172789f06886806bc55\n/);
});

test('a folder in the cache that has something in it is somebody’s, and stays', async (t) => {
  const { root, cache } = await setUp(t);
  await cache.close();
  mkdirSync(join(root, 'blobs', 'mine', 'deep'), { recursive: true });
  mkdirSync(join(root, 'partial', 'mine', 'deep'), { recursive: true });
  await setUp(t, { root });
  t.true(existsSync(join(root, 'blobs', 'mine', 'deep')) && existsSync(join(root, 'partial', 'mine', 'deep')));
});

const obstacles: Record<string, (path: string, outside: string) => void> = {
  'a symbolic link': (path, outside) => symlinkSync(outside, path),
  'an empty folder': (path) => mkdirSync(path),
  'a FIFO': (path) => execFileSync('mkfifo', [path]),
};
for (const [what, obstruct] of Object.entries(obstacles)) {
  for (const place of ['blobs', 'proofs', 'partial'] as const) {
    test(`${what} in the place of a file of ${place}/ neither blocks nor leads astray, and is replaced`, async (t) => {
      const { add, open, root } = await setUp(t);
      const blob = blobOf('a');
      add(blob);
      const { sha256 } = blob.address;
      const shard = place === 'partial' ? '' : sha256.slice(0, 2);
      mkdirSync(join(root, place, shard), { recursive: true });
      const outside = join(temporaryFolder(t), 'precious');
      writeFileSync(outside, 'precious');
      obstruct(join(root, place, shard, sha256), outside);
      t.true(holds(await open(blob), blob));
      t.is(readFileSync(outside, 'utf8'), 'precious');
    });
  }
}

test('a second name of a partial file is not written through', async (t) => {
  const { add, open, root } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  const precious = join(root, 'precious');
  writeFileSync(precious, 'precious');
  linkSync(precious, join(root, 'partial', blob.address.sha256));
  t.true(holds(await open(blob), blob));
  t.is(readFileSync(precious, 'utf8'), 'precious');
});

test('a partial file left read-only, as by a kill right before its rename, is taken up again by an ordinary user', async (t) => {
  const root = temporaryFolder(t);
  const program = `
    import { writeFileSync, chmodSync, chownSync } from 'node:fs';
    import { BlobStore } from ${JSON.stringify(new URL('../../src/blobs/blob-store.js', import.meta.url).href)};
    process.setgid(65534); process.setuid(65534);
    const store = await BlobStore.open(process.argv[1] + '/cache');
    const path = store.layout.partial('ab'.repeat(32));
    writeFileSync(path, 'x');
    chmodSync(path, 0o444);
    const partial = await store.partials.lock('ab'.repeat(32));
    await partial.handle.truncate(0);
    await partial.handle.close();
    console.log(await store.partials.remove('ab'.repeat(32)));`;
  chmodSync(root, 0o777);
  const { stdout } = await execa(process.execPath, ['--input-type=module', '-e', program, root]);
  t.is(stdout, 'true');
});

test('a burst of opens that fit one after the other is served, none is told that there is no room', async (t) => {
  const { add, open, cache } = await setUp(t, { limits: { ...limitsOf(2 * MIB), leasePatienceMs: 5000 } });
  const blobs = Array.from({ length: 12 }, (_, index) => blobOf(`x${index}`, MIB));
  blobs.forEach(add);
  await Promise.all(
    blobs.map(async (blob) => {
      const lease = await open(blob);
      t.true(holds(lease, blob));
      t.true(cache.statistics().use.usedBytes <= 2 * MIB);
      lease.release();
    }),
  );
  t.is(cache.statistics().failed, 0);
});

test('a cache directory that was removed behind a running daemon is made again', async (t) => {
  const { add, open, root } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  rmSync(root, { recursive: true });
  t.true(holds(await open(blob), blob));
});

test('the last failure of a blob can be asked for until a fetch of it succeeds', async (t) => {
  const { source, cache, add, open } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  source.failure = new TmaxError('EHOSTUNREACH', 'nobody answers');
  await errnoOf(t, () => open(blob));
  t.deepEqual(cache.state(blob.address.sha256), { state: 'absent', failure: 'EHOSTUNREACH: nobody answers' });
  source.failure = undefined;
  (await open(blob)).release();
  t.is(cache.state(blob.address.sha256).state, 'ready');
});

test('a refusal at a depth that is not asked for any more, or by an older verifier, is judged anew', async (t) => {
  const { root, verdicts, add, open, cache } = await setUp(t, { level: 'deep' });
  const blob = blobOf('a');
  add(blob);
  verdicts.reason = 'broken';
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  await cache.close();
  for (const [overrides, isRefused] of [
    [{ level: 'deep' }, true],
    [{ level: 'structure' }, false],
    [{ level: 'deep', verifierVersion: 2 }, false],
  ] as const) {
    const again = await setUp(t, { root, ...overrides });
    again.add(blob);
    again.verdicts.reason = 'still broken';
    await errnoOf(t, () => again.open(blob));
    t.is(again.source.downloads.length === 0, isRefused, JSON.stringify(overrides));
    await again.cache.close();
    // The record of the first refusal is what the next round is about.
    if (!isRefused)
      writeFileSync(join(root, 'quarantine', `${blob.address.sha256}.json`), recordOf(root, blob, 1, 'deep'));
  }
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
