import { createHash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { BlobCache, type BlobCacheOptions } from '../../src/blobs/blob-cache.js';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { type PrefetchFailure, type PrefetchOptions, prefetch } from '../../src/blobs/prefetch.js';
import { TmaxError } from '../../src/errors.js';
import type { BlobAddress, Download, DownloadOptions, Source } from '../../src/sources/source.js';
import { SourceHealth } from '../../src/sources/source-health.js';
import { provingAfterwards } from '../support/proving-afterwards.js';
import { temporaryFolder } from '../support/temporary.js';

/** A block: the least that a file takes of a disk, and so of the cache. */
const SIZE = 4096;

function addressOf(name: string, sizeBytes = SIZE): BlobAddress {
  const sha256 = createHash('sha256').update(Buffer.alloc(sizeBytes, name)).digest('hex');
  return { repository: 'o/p', commit: 'c'.repeat(40), path: name, sha256, sizeBytes };
}

/** Writes one half of each blob at once, and the other when the test lets it. */
class SlowSource extends EventEmitter implements Source {
  readonly name = 'slow';
  readonly health = new SourceHealth();
  /** What was asked for, in order; a call that was aborted is marked. */
  readonly log: string[] = [];
  failing = new Set<string>();
  #held: (() => void)[] | undefined;

  hold(): void {
    this.#held = [];
  }

  release(): void {
    for (const go of this.#held?.splice(0) ?? []) go();
    this.#held = undefined;
  }

  /** Resolves when this blob is asked for. */
  async asked(path: string): Promise<void> {
    while (!this.log.includes(path)) await once(this, 'download');
  }

  async download({ path, sizeBytes }: BlobAddress, partial: string, options: DownloadOptions): Promise<Download> {
    this.log.push(path);
    writeFileSync(partial, Buffer.alloc(sizeBytes / 2, path));
    options.onProgress?.(sizeBytes / 2);
    this.emit('download', path);
    await new Promise<void>((resolve, reject) => {
      options.signal.addEventListener('abort', () => {
        this.log.push(`${path} called off`);
        reject(new TmaxError('EINTR', 'called off'));
      });
      if (this.#held === undefined) resolve();
      else this.#held.push(resolve);
    });
    if (this.failing.has(path)) throw new TmaxError('EHOSTUNREACH', 'no answer');
    const content = Buffer.alloc(sizeBytes, path);
    writeFileSync(partial, content);
    const sha256 = createHash('sha256').update(content).digest('hex');
    return { sizeBytes, sha256, resumedBytes: 0, attempts: 1 };
  }

  async close(): Promise<void> {}
}

async function setUp(t: ExecutionContext, overrides: Partial<BlobCacheOptions> = {}) {
  const root = temporaryFolder(t);
  const source = new SlowSource();
  const cache = await BlobCache.open({
    store: await BlobStore.open(root),
    limits: { limitBytes: 1e6, reserveFreeBytes: 0, leasePatienceMs: 20 },
    sources: [source],
    prover: provingAfterwards({
      verify: async (_, __, level) => ({ outcome: 'valid', level, architecture: 'amd64', warnings: [] }),
    }),
    verifierVersion: 1,
    level: 'structure',
    architecture: { served: 'any', host: 'amd64' },
    openTimeoutMs: 100_000,
    maxFetches: 2,
    log: pino({ level: 'silent' }),
    ...overrides,
  });
  t.teardown(() => cache.close());
  const open = async (address: BlobAddress) =>
    await cache.open(address, { variant: 'v', task: address.path }, new AbortController().signal);
  const isOnDisk = ({ sha256 }: BlobAddress) => existsSync(join(root, 'blobs', sha256.slice(0, 2), sha256));
  const failures: PrefetchFailure[] = [];
  const fetchAll = (addresses: readonly BlobAddress[], options: Partial<PrefetchOptions> = {}) =>
    prefetch(
      cache,
      new Map(addresses.map((address) => [address.sha256, { address, label: { variant: 'v', task: address.path } }])),
      {
        concurrency: 2,
        signal: new AbortController().signal,
        onProgress: () => {},
        onFailure: (failure) => failures.push(failure),
        ...options,
      },
    );
  return { cache, source, open, isOnDisk, fetchAll, failures };
}

const [A, B, C, D] = ['a', 'b', 'c', 'd'].map((name) => addressOf(name)) as [
  BlobAddress,
  BlobAddress,
  BlobAddress,
  BlobAddress,
];

test('every blob is made ready once; a second run has nothing to fetch', async (t) => {
  const { source, fetchAll, isOnDisk } = await setUp(t);
  const expected = { blobs: 3, readyBlobs: 3, failedBlobs: 0, bytes: 3 * SIZE, readyBytes: 3 * SIZE };
  t.deepEqual(await fetchAll([A, B, C]), expected);
  t.true([A, B, C].every(isOnDisk));
  // Two are fetched at a time: which of them asks first is the disk's affair.
  t.deepEqual([...source.log].sort(), ['a', 'b', 'c']);
  t.deepEqual(await fetchAll([A, B, C]), expected);
  t.is(source.log.length, 3);
});

test('a failure is named and counted, and the rest goes on', async (t) => {
  const { source, fetchAll, failures, isOnDisk } = await setUp(t);
  source.failing.add('b');
  t.like(await fetchAll([A, B, C]), { readyBlobs: 2, failedBlobs: 1, readyBytes: 2 * SIZE });
  t.deepEqual(failures, [{ variant: 'v', task: 'b', path: 'b', errno: 'EHOSTUNREACH', message: 'no answer' }]);
  t.true(isOnDisk(C));
});

test('a prefetch gives way at once to an open, and goes on after it', async (t) => {
  const { source, open, fetchAll } = await setUp(t, { maxFetches: 1 });
  source.hold();
  const prefetched = fetchAll([A, B]);
  await source.asked('a');
  const opened = open(C);
  await source.asked('c');
  t.deepEqual(source.log, ['a', 'a called off', 'c']);
  source.release();
  (await opened).release();
  t.like(await prefetched, { readyBlobs: 2, failedBlobs: 0 });
  t.deepEqual(source.log.slice(3).sort(), ['a', 'b']);
});

test('an open that joins a prefetched blob keeps it from giving way', async (t) => {
  const { source, open, fetchAll } = await setUp(t, { maxFetches: 1 });
  source.hold();
  const prefetched = fetchAll([A]);
  await source.asked('a');
  const joined = open(A);
  const other = open(B);
  source.release();
  (await joined).release();
  (await other).release();
  await prefetched;
  t.deepEqual(source.log, ['a', 'b']);
});

test('who goes away ends what only he wanted, and leaves what an open has joined', async (t) => {
  const { cache, source, open, fetchAll } = await setUp(t);
  source.hold();
  const controller = new AbortController();
  // Which of them asks first is the disk's affair.
  const begun = Promise.all([source.asked('a'), source.asked('b')]);
  const prefetched = t.throwsAsync(fetchAll([A, B, C], { signal: controller.signal }), { instanceOf: TmaxError });
  await begun;
  const joined = open(A);
  controller.abort();
  t.is((await prefetched)?.errno, 'EINTR');
  source.release();
  (await joined).release();
  t.deepEqual(source.log.slice(0, 2).sort(), ['a', 'b']);
  t.deepEqual(source.log.slice(2), ['b called off']);
  t.is(cache.state(C.sha256).state, 'absent');
  t.deepEqual(cache.statistics().lastFailures, []);
});

test('what can’t be on disk at one time is refused before anything is fetched, with the numbers', async (t) => {
  const limits = { limitBytes: 2.5 * SIZE, reserveFreeBytes: 0, leasePatienceMs: 20 };
  const { source, open, fetchAll } = await setUp(t, { limits });
  const error = await t.throwsAsync(fetchAll([A, B, C]), { instanceOf: TmaxError });
  t.is(error?.errno, 'ENOSPC');
  t.regex(error?.message ?? '', /no room for 3 images of 12288 bytes in all: the cache may hold 10240 bytes/);
  t.deepEqual(source.log, []);
  const held = await open(D);
  t.is((await t.throwsAsync(fetchAll([A, B]), { instanceOf: TmaxError }))?.errno, 'ENOSPC', 'd is held open');
  held.release();
  t.like(await fetchAll([A, B]), { readyBlobs: 2 });
});

test('it makes room by what is not wanted and not held open, never by one of its own', async (t) => {
  const limits = { limitBytes: 3 * SIZE, reserveFreeBytes: 0, leasePatienceMs: 20 };
  const { open, fetchAll, isOnDisk } = await setUp(t, { limits });
  for (const address of [A, B, C]) (await open(address)).release();
  // A is the least recently used: it would be the first to go.
  t.like(await fetchAll([A, D]), { readyBlobs: 2 });
  t.deepEqual([A, B, C, D].map(isOnDisk), [true, false, true, true]);
});

test('an open that joins a prefetched blob has room made for it by what the prefetch would have kept', async (t) => {
  const { cache, open } = await setUp(t, {
    limits: { limitBytes: 2.5 * SIZE, reserveFreeBytes: 0, leasePatienceMs: 20 },
  });
  const [kept, held, wanted] = ['kept', 'held', 'wanted'].map((name) => addressOf(name));
  if (kept === undefined || held === undefined || wanted === undefined) return t.fail();
  (await open(kept)).release();
  const lease = await open(held);
  const keep = new Set([kept.sha256, wanted.sha256]);
  const label = { variant: 'v', task: 'wanted' };
  const bringing = cache.bring(wanted, label, new AbortController().signal, keep);
  (await open(wanted)).release();
  await bringing;
  t.is(cache.state(kept.sha256).state, 'absent');
  lease.release();
});

test('an open that joins a prefetched blob waits for no other fetch where the prefetch would have', async (t) => {
  const { cache, open, source } = await setUp(t, {
    limits: { limitBytes: 2.5 * SIZE, reserveFreeBytes: 0, leasePatienceMs: 20 },
  });
  (await open(A)).release();
  source.hold();
  const slow = open(B);
  await source.asked('b');
  const keep = new Set([A.sha256, C.sha256]);
  const bringing = cache.bring(C, { variant: 'v', task: 'c' }, new AbortController().signal, keep);
  const opening = open(C);
  await source.asked('c');
  t.is(cache.state(A.sha256).state, 'absent');
  source.release();
  await bringing;
  for (const lease of await Promise.all([slow, opening])) lease.release();
});

test('a prefetch that finds no room beside its own and what is held open is told so, not to free the disk', async (t) => {
  const { cache, open, isOnDisk } = await setUp(t, {
    limits: { limitBytes: 2.5 * SIZE, reserveFreeBytes: 0, leasePatienceMs: 20 },
  });
  (await open(A)).release();
  const lease = await open(B);
  const keep = new Set([A.sha256, C.sha256]);
  const bringing = cache.bring(C, { variant: 'v', task: 'c' }, new AbortController().signal, keep);
  const { errno, message } = (await t.throwsAsync(bringing, { instanceOf: TmaxError })) ?? {};
  t.is(errno, 'ENOSPC');
  t.regex(message ?? '', new RegExp(`${SIZE} are held open, .*, and ${SIZE} are wanted by the same prefetch;`));
  t.regex(message ?? '', /; raise --cache-size, or end sandboxes, or prefetch fewer at one time$/);
  t.true(isOnDisk(A));
  lease.release();
});

test('what was there already is not more recently used than before', async (t) => {
  const limits = { limitBytes: 2 * SIZE, reserveFreeBytes: 0, leasePatienceMs: 20 };
  const { open, fetchAll, isOnDisk } = await setUp(t, { limits });
  for (const address of [A, B]) (await open(address)).release();
  await fetchAll([A]);
  (await open(C)).release();
  t.deepEqual([A, B, C].map(isOnDisk), [false, true, true]);
});

test('progress tells what has arrived of those under way', async (t) => {
  const { source, fetchAll } = await setUp(t);
  source.hold();
  const first = new Promise((resolve) => {
    const onProgress: PrefetchOptions['onProgress'] = (progress) => progress.readyBytes > SIZE / 2 && resolve(progress);
    void fetchAll([A, B, C], { onProgress });
  });
  t.deepEqual(await first, { blobs: 3, readyBlobs: 0, failedBlobs: 0, bytes: 3 * SIZE, readyBytes: SIZE });
  source.release();
});
