/** What filling a destination brings, passes over, leaves in the cache, and ends by. */

import { existsSync } from 'node:fs';
import test, { type ExecutionContext } from 'ava';
import { type SeedOptions, seed } from '../../src/blobs/seed.js';
import type { Destination } from '../../src/destinations/destination.js';
import { TmaxError } from '../../src/errors.js';
import { type Blob, blobOf, blobPath, setUp } from '../support/blob-cache.js';
import { destinationOn, publishedIn } from '../support/destinations.js';
import { memoryDisk } from '../support/memory-disk.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;
const BLOBS = Array.from({ length: 8 }, (_, seed) => blobOf(`x${seed}`, MIB));
const DIGESTS = BLOBS.map(({ address }) => address.sha256).sort();

const wanted = (blobs: readonly Blob[]) =>
  new Map(blobs.map(({ address }) => [address.sha256, { address, label: { variant: 'v', task: address.path } }]));

async function node(t: ExecutionContext, destination: Destination, limitBytes = 3 * MIB) {
  const limits = { limitBytes, reserveFreeBytes: 0, leasePatienceMs: 60_000 };
  const parts = await setUp(t, { limits, maxFetches: 2 });
  BLOBS.forEach(parts.add);
  const failures: string[] = [];
  const run = (options: Partial<SeedOptions> = {}) =>
    seed({ cache: parts.cache, destination }, wanted(BLOBS), {
      concurrency: 2,
      signal: new AbortController().signal,
      onProgress: () => {},
      onFailure: ({ path, errno }) => failures.push(`${path} ${errno}`),
      ...options,
    });
  return { ...parts, run, failures };
}

test('all of it is brought through a smaller cache, which is left as it was; a second run has nothing to do', async (t) => {
  const folder = temporaryFolder(t);
  const { run, root, source, open } = await node(t, destinationOn(t, folder));
  const [kept = t.fail()] = BLOBS;
  (await open(kept)).release();
  const all = { blobs: 8, readyBlobs: 8, failedBlobs: 0, bytes: 8 * MIB, readyBytes: 8 * MIB };
  t.deepEqual(await run(), { ...all, writtenBlobs: 8 });
  t.deepEqual(publishedIn(folder), DIGESTS);
  for (const blob of BLOBS) t.is(existsSync(blobPath(root, blob)), blob === kept);
  t.deepEqual(await run(), { ...all, writtenBlobs: 0 });
  t.is(source.downloads.length, 8);
});

test('nodes that fill one directory at one time share the work', async (t) => {
  const folder = temporaryFolder(t);
  const nodes = await Promise.all([0, 1, 2].map(() => node(t, destinationOn(t, folder))));
  const results = await Promise.all(nodes.map(({ run }) => run()));
  for (const { readyBlobs, failedBlobs } of results) t.deepEqual([readyBlobs, failedBlobs], [8, 0]);
  t.is(
    results.reduce((sum, { writtenBlobs }) => sum + writtenBlobs, 0),
    8,
  );
  t.is(nodes.flatMap(({ source }) => source.downloads).length, 8);
});

test('an image that can’t be had is told, and ends nothing', async (t) => {
  const folder = temporaryFolder(t);
  const { run, failures, source } = await node(t, destinationOn(t, folder));
  const broken = BLOBS[3]?.address ?? t.fail();
  source.contents.set(broken.sha256, Buffer.alloc(MIB, 'other'));
  const { readyBlobs, failedBlobs } = await run();
  t.deepEqual([readyBlobs, failedBlobs], [7, 1]);
  t.deepEqual(failures, [`${broken.path} EBADMSG`]);
  t.deepEqual(
    publishedIn(folder),
    DIGESTS.filter((digest) => digest !== broken.sha256),
  );
});

test('a destination that is full ends it, and what is there stays', async (t) => {
  const { path } = await memoryDisk(t, 8 * MIB);
  const limits = { reserve: { bytes: 4 * MIB }, limitBytes: undefined };
  const { run } = await node(t, destinationOn(t, path, { limits }));
  const error = await t.throwsAsync(run(), { instanceOf: TmaxError });
  t.is(error?.errno, 'ENOSPC');
  const { length } = publishedIn(path);
  t.true(length >= 2 && length <= 4, `${length} are there`);
});

test('who calls it off runs it again to go on', async (t) => {
  const folder = temporaryFolder(t);
  const destination = destinationOn(t, folder);
  const { run, source } = await node(t, destination);
  const controller = new AbortController();
  source.on('download', () => source.downloads.length === 4 && controller.abort());
  t.is((await t.throwsAsync(run({ signal: controller.signal }), { instanceOf: TmaxError }))?.errno, 'EINTR');
  t.true(publishedIn(folder).length < 8);
  const { readyBlobs } = await run();
  t.is(readyBlobs, 8);
  t.deepEqual(publishedIn(folder), DIGESTS);
});
