/** What `tmaxfs cache` finds in a directory and takes away from it, while others use it. */

import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { BlobStore } from '../../src/blobs/blob-store.js';
import type { CatalogSources } from '../../src/catalog/catalog.js';
import { CatalogStore } from '../../src/catalog/catalog-store.js';
import { cleanCache } from '../../src/daemon/cache-cleaning.js';
import { listCache, measureCache } from '../../src/daemon/cache-listing.js';
import { TmaxError } from '../../src/errors.js';
import { type Blob, blobOf, blobPath, proofPath, setUp } from '../support/blob-cache.js';
import { taskMapSources } from '../support/catalogs.js';

const OLD = '1'.repeat(40);
const NEW = '2'.repeat(40);
const [A, B, C] = ['a', 'b', 'c'].map((seed) => blobOf(seed)) as [Blob, Blob, Blob];
const sha = ({ address }: Blob) => address.sha256;

/** The catalog of a commit; task `<path>` of variant `v` is the blob at that path. */
function catalogOf(commit: string, blobs: readonly Blob[]): CatalogSources {
  const tasks = Object.fromEntries(blobs.map(({ address }) => [address.path.replace('.sif', ''), address.path]));
  const listing = blobs.map(({ address: { path, sizeBytes, sha256 } }) => ({ path, sizeBytes, sha256 }));
  return taskMapSources({
    repository: 'o/p',
    commit,
    date: new Date(0),
    taskMap: JSON.stringify({ v: tasks }),
    listing,
  });
}

/** A cache with A, B and C in it, of which the old commit names A and B, and the new one B. */
async function setUpCache(t: ExecutionContext) {
  const parts = await setUp(t);
  for (const blob of [A, B, C]) parts.add(blob);
  for (const blob of [A, B, C]) (await parts.open(blob)).release();
  const store = await BlobStore.existing(parts.root);
  const catalogs = new CatalogStore(store.layout.catalogs);
  await catalogs.save(catalogOf(OLD, [A, B]));
  await catalogs.save(catalogOf(NEW, [B]));
  await catalogs.rememberCommit('o/p', 'main', NEW);
  const clean = (options: Partial<Parameters<typeof cleanCache>[1]> = {}) =>
    cleanCache(store, { shown: new Set(), unlisted: false, ...options });
  return { ...parts, store, catalogs, clean };
}

const catalogPath = (root: string, commit: string) => join(root, 'catalog', 'o--p', `${commit}.json`);

function ageDays(path: string, days: number): void {
  const seconds = Date.now() / 1000 - days * 86_400;
  utimesSync(path, seconds, seconds);
}

test('ls tells of each blob its size, use, proof, pin, holder and names, whichever is evicted next first', async (t) => {
  const { cache, open, root, store } = await setUpCache(t);
  await cache.pin([sha(A)]);
  const lease = await open(B);
  rmSync(proofPath(root, C));
  utimesSync(blobPath(root, B), 1000, 1000);
  const { directory, blobs } = await listCache(store);
  t.is(directory, root);
  t.is(blobs[0]?.sha256, sha(B));
  t.is(blobs[0]?.usedAt, '1970-01-01T00:16:40.000Z');
  const found = (blob: Blob) => blobs.find(({ sha256 }) => sha256 === sha(blob));
  t.like(found(A), { sizeBytes: 1000, level: 'structure', pinned: true, open: false, names: ['v/a'], path: 'a.sif' });
  t.like(found(B), { level: null, pinned: false, open: true, names: ['v/b'] }, 'it is not the file that was proven');
  t.like(found(C), { level: null, pinned: false, open: false, names: [], path: null });
  lease.release();
  t.false((await listCache(store)).blobs.some((blob) => blob.open));
});

test('du sums what lies there, and changes nothing', async (t) => {
  const { cache, open, root, store } = await setUpCache(t);
  await cache.pin([sha(A)]);
  const lease = await open(B);
  writeFileSync(join(root, 'partial', 'stray'), 'x');
  writeFileSync(join(root, 'retired', `${sha(A)}.0123456789ab`), Buffer.alloc(4096, 'x'));
  symlinkSync('/dev/zero', join(root, 'quarantine', 'link'));
  const use = await measureCache(store, []);
  t.like(use.blobs, { files: 3, bytes: 3000, pinned: { files: 1, bytes: 1000 }, open: { files: 1, bytes: 1000 } });
  t.like(use, {
    partials: { files: 1 },
    retired: { files: 1, bytes: 4096 },
    proofs: { files: 3 },
    quarantine: { files: 1 },
    daemons: [],
  });
  t.is(use.catalogs.files, 3, 'two commits, and what main stands for');
  const { blobs, partials, retired, proofs, quarantine, catalogs } = use;
  t.is(use.bytes, blobs.bytes + partials.bytes + retired.bytes + proofs.bytes + quarantine.bytes + catalogs.bytes);
  t.true(existsSync(join(root, 'partial', 'stray')));
  lease.release();
});

test('gc removes partial files that nobody fills, and no other', async (t) => {
  const { root, store, clean } = await setUpCache(t);
  const running = await store.partials.lock('e'.repeat(64));
  writeFileSync(join(root, 'partial', 'f'.repeat(64)), Buffer.alloc(8192, 'x'));
  writeFileSync(join(root, 'partial', 'stray'), 'x');
  const { partials, runningFetches } = await clean();
  t.is(partials.files, 2);
  t.true(partials.bytes >= 8192);
  t.is(runningFetches, 1);
  t.deepEqual(readdirSync(join(root, 'partial')), ['e'.repeat(64)]);
  await running?.handle.close();
  t.is((await clean()).partials.files, 1);
});

test('gc removes a damaged blob that was replaced once it is closed, and leaves what is reserved alone', async (t) => {
  const { open, root, store, clean } = await setUpCache(t);
  const lease = await open(A);
  await store.retire(sha(A));
  const reservation = join(root, 'reservations', `fetch.${sha(B)}.1000.0123456789abcdef`);
  writeFileSync(reservation, '');
  t.is((await clean()).retired.files, 0);
  lease.release();
  t.like((await clean()).retired, { files: 1, bytes: 4096 });
  t.deepEqual(readdirSync(join(root, 'retired')), []);
  t.true(existsSync(reservation), 'daemons look after these');
});

test('gc removes a proof without its blob, but not that of a blob just being published', async (t) => {
  const { root, store, clean } = await setUpCache(t);
  rmSync(blobPath(root, A));
  rmSync(blobPath(root, B));
  const publishing = await store.partials.lock(sha(B));
  t.is((await clean()).proofs.files, 1);
  t.deepEqual(
    [A, B, C].map((blob) => existsSync(proofPath(root, blob))),
    [false, true, true],
  );
  await publishing?.handle.close();
});

test('gc removes temporary files that were left long ago, and none that is being written', async (t) => {
  const { root, clean } = await setUpCache(t);
  const left = [
    `${proofPath(root, A)}.0123456789ab.tmp`,
    join(root, 'quarantine', `${sha(A)}.json.0123456789ab.tmp`),
    `${catalogPath(root, OLD)}.0123456789ab.tmp`,
    join(root, 'CACHEDIR.TAG.0123456789ab.tmp'),
  ];
  for (const path of left) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, 'x');
  }
  t.is((await clean()).temporaryFiles.files, 0);
  for (const path of left) ageDays(path, 1);
  t.is((await clean()).temporaryFiles.files, left.length);
  t.false(left.some((path) => existsSync(path)));
  t.true(existsSync(join(root, 'CACHEDIR.TAG')));
});

test('gc removes catalogs that nothing shows and nobody has used for a month, and damaged ones', async (t) => {
  const { root, catalogs, clean } = await setUpCache(t);
  const damaged = catalogPath(root, '3'.repeat(40));
  writeFileSync(damaged, '{"torn');
  t.is((await clean()).catalogs.files, 1);
  t.false(existsSync(damaged));
  for (const commit of [OLD, NEW]) ageDays(catalogPath(root, commit), 31);
  t.is((await clean({ shown: new Set([OLD]) })).catalogs.files, 0);
  await catalogs.load('o/p', OLD, 'task-map');
  t.is((await clean()).catalogs.files, 0, 'it was used just now');
  ageDays(catalogPath(root, OLD), 31);
  t.is((await clean()).catalogs.files, 1);
  t.deepEqual(
    [OLD, NEW].map((commit) => existsSync(catalogPath(root, commit))),
    [false, true],
  );
});

test('gc touches no ready blob; with --unlisted those that nothing shows go, unless pinned or open', async (t) => {
  const { cache, open, root, clean } = await setUpCache(t);
  const onDisk = () => [A, B, C].map((blob) => existsSync(blobPath(root, blob)));
  t.is((await clean()).unlisted, null);
  t.deepEqual(onDisk(), [true, true, true]);
  await cache.pin([sha(A)]);
  const lease = await open(C);
  t.deepEqual((await clean({ unlisted: true })).unlisted, { files: 0, bytes: 0, keptPinned: 1, keptInUse: 1 });
  lease.release();
  await cache.unpin([sha(A)]);
  t.like((await clean({ unlisted: true, shown: new Set([OLD]) })).unlisted, { files: 1, bytes: 1000 });
  t.deepEqual(onDisk(), [true, true, false]);
  t.like((await clean({ unlisted: true })).unlisted, { files: 1 });
  t.deepEqual(onDisk(), [false, true, false]);
});

test('where nothing tells what is listed, --unlisted is refused and nothing removed', async (t) => {
  const { root, clean } = await setUpCache(t);
  rmSync(join(root, 'catalog', 'o--p', 'revisions.json'));
  writeFileSync(join(root, 'partial', 'f'.repeat(64)), 'x');
  const error = await t.throwsAsync(clean({ unlisted: true }), { instanceOf: TmaxError });
  t.is(error.errno, 'ENOENT');
  t.true(existsSync(blobPath(root, A)));
  t.true(existsSync(join(root, 'partial', 'f'.repeat(64))));
});
