/** Blobs that are hard links to files of a directory: one file, two names, and each side's rights. */

import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { BlobCacheOptions } from '../../src/blobs/blob-cache.js';
import { Capacity } from '../../src/blobs/capacity.js';
import { checkStored } from '../../src/blobs/stored-blob-check.js';
import { DirectorySource } from '../../src/sources/directory-source.js';
import { type Blob, blobOf, blobPath, errnoOf, holds, setUp } from '../support/blob-cache.js';
import { memoryFolder } from '../support/loop-disk.js';
import { provingAfterwards } from '../support/proving-afterwards.js';

const MIB = 2 ** 20;

/** A cache and a directory on one file system that can't clone, and what lies in the directory. */
async function setUpBoth(t: ExecutionContext, overrides: Pick<Partial<BlobCacheOptions>, 'prover'> = {}) {
  const disk = await memoryFolder(t, 16 * MIB);
  const [root, folder] = [join(disk, 'cache'), join(disk, 'images')];
  mkdirSync(folder);
  const put = ({ address, content }: Blob, bytes = content): string => {
    const path = join(folder, address.path);
    writeFileSync(path, bytes);
    chmodSync(path, 0o444);
    // With a part of a second, as files have.
    utimesSync(path, 1_700_000_000.25, 1_700_000_000.75);
    return path;
  };
  const directory = new DirectorySource(folder, { idleTimeoutMs: 20_000 });
  t.teardown(() => directory.close());
  return { ...(await setUp(t, { root, sources: [directory], ...overrides })), put };
}

test('an image that is ours to keep becomes a blob by a second name, and stays what it is in its directory', async (t) => {
  const { root, open, store, cache, put, verdicts } = await setUpBoth(t);
  const blob = blobOf('a');
  const image = put(blob);
  const before = lstatSync(image);
  const lease = await open(blob);
  t.true(holds(lease, blob));
  t.is(lstatSync(blobPath(root, blob)).ino, before.ino);
  t.deepEqual(readdirSync(join(root, 'partial')), []);
  t.is(verdicts.calls.length, 1, 'proven before it was shown');
  const { mode, mtimeMs } = lstatSync(image);
  t.deepEqual({ mode, mtimeMs }, { mode: before.mode, mtimeMs: before.mtimeMs });
  lease.release();
  (await open(blob)).release();
  t.is(verdicts.calls.length, 1, 'its proof holds for the next open');
  t.true(await store.evict(blob.address.sha256));
  t.false(existsSync(blobPath(root, blob)));
  t.true(readFileSync(image).equals(blob.content));
  t.is(cache.statistics().quarantine.length, 0);
});

test('one that fails its proof is refused, and only its second name goes', async (t) => {
  const { root, open, put, verdicts } = await setUpBoth(t);
  const blob = blobOf('a');
  const image = put(blob);
  verdicts.reason = 'no valid image';
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  t.false(existsSync(blobPath(root, blob)));
  t.true(readFileSync(image).equals(blob.content));
  t.is(lstatSync(image).nlink, 1);
});

test('a link that a killed daemon has left is removed by the next fetch, and its file not touched', async (t) => {
  const { root, open, put } = await setUpBoth(t);
  const blob = blobOf('a');
  const image = put(blob);
  const { sha256 } = blob.address;
  for (const name of [sha256, `${sha256}.0123456789abcdef`]) linkSync(image, join(root, 'partial', name));
  t.true(holds(await open(blob), blob));
  t.deepEqual(readdirSync(join(root, 'partial')), []);
  t.true(readFileSync(image).equals(blob.content));
  t.is(lstatSync(image).nlink, 2, 'the directory’s and the blob');
});

test('a blob whose file is changed under its other name is proven again at the next open, and fetched anew if it must be', async (t) => {
  const { root, open, put, verdicts } = await setUpBoth(t);
  const blob = blobOf('a');
  const image = put(blob);
  (await open(blob)).release();
  chmodSync(image, 0o644);
  writeFileSync(image, Buffer.alloc(blob.content.length, 'x'));
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  t.false(existsSync(blobPath(root, blob)));
  t.true(existsSync(dirname(image)) && existsSync(image), 'what is in the directory is never removed');
  t.true(verdicts.calls.length > 1);
});

test('an image that is changed while it is proven is not shown', async (t) => {
  const blob = blobOf('a');
  let image = '';
  const prover = provingAfterwards({
    // Its form alone, after its digest was found to be right.
    verify: async (_path, _expectation, level) => {
      chmodSync(image, 0o644);
      writeFileSync(image, Buffer.alloc(blob.content.length, 'x'));
      chmodSync(image, 0o444);
      return { outcome: 'valid', level, architecture: 'amd64', warnings: [] };
    },
  });
  const { root, open, put } = await setUpBoth(t, { prover });
  image = put(blob);
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  t.false(existsSync(blobPath(root, blob)));
});

test('a verification by apptainer leaves the time of change of a linked image as it was, to the nanosecond', async (t) => {
  const { open, store, put, prover } = await setUpBoth(t);
  const blob = blobOf('a');
  const image = put(blob);
  execFileSync('touch', ['-m', '-d', '2024-01-02 03:04:05.123456789', image]);
  (await open(blob)).release();
  const environment = { store, prover, verifierVersion: 1, level: 'inspect' } as const;
  t.is((await checkStored(environment, blob.address, new AbortController().signal)).kind, 'sound');
  t.is(lstatSync(image, { bigint: true }).mtimeNs % 1_000_000_000n, 123_456_789n);
});

test('a full disk is relieved by blobs that give room back: one that is linked does not count', async (t) => {
  const { open, store, cache, put, root } = await setUpBoth(t);
  const [oldest, copied, kept] = [blobOf('a'), blobOf('b'), blobOf('c')];
  put(oldest);
  for (const blob of [copied, kept]) chmodSync(put(blob), 0o644);
  for (const blob of [oldest, copied, kept]) (await open(blob)).release();
  // Its last uses are written down by then.
  await cache.close();
  for (const [age, blob] of [oldest, copied, kept].entries()) {
    utimesSync(blobPath(root, blob), 1_700_000_000 + age, lstatSync(blobPath(root, blob)).mtimeMs / 1000);
  }
  const limits = { limitBytes: MIB, reserveFreeBytes: 0, leasePatienceMs: 20 };
  const capacity = new Capacity(store, limits, () => {});
  t.teardown(() => capacity.close());
  await capacity.load(true);
  const { evictedBytes } = await capacity.relieve(1, new Set());
  t.is(evictedBytes, 1000);
  t.deepEqual(
    [oldest, copied, kept].map((blob) => existsSync(blobPath(root, blob))),
    [false, false, true],
  );
});
