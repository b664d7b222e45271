/** Nodes with caches of their own that share a directory: who fetches a blob, who finds it there, and what never fails an open. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Destination } from '../../src/destinations/destination.js';
import { TmaxError } from '../../src/errors.js';
import { DirectorySource } from '../../src/sources/directory-source.js';
import { type Blob, blobOf, holds, setUp } from '../support/blob-cache.js';
import { destinationOn, NO_LIMITS, publishedIn } from '../support/destinations.js';
import { memoryDisk } from '../support/memory-disk.js';
import { eventually } from '../support/mount-client.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;

/** A node: its cache, its own Hub, and the directory as its first source. */
async function node(
  t: ExecutionContext,
  folder: string,
  blobs: readonly Blob[],
  options: { readonly openTimeoutMs?: number; readonly destination?: Destination } = {},
) {
  const directory = new DirectorySource(folder, { idleTimeoutMs: 90_000 });
  const { destination = destinationOn(t, folder), openTimeoutMs = 600_000 } = options;
  const hub = (await setUp(t)).source;
  for (const { address, content } of blobs) hub.contents.set(address.sha256, content);
  const parts = await setUp(t, { sources: [directory, hub], destinations: [destination], openTimeoutMs });
  t.teardown(() => directory.close());
  const published = () => parts.cache.statistics().publishing[0] ?? t.fail();
  return { ...parts, hub, published };
}

const isDone = (nodes: readonly { published: () => { queued: number } }[]) =>
  eventually('all is published', () => nodes.every(({ published }) => published().queued === 0) || undefined);

test('of eight nodes that want the same blobs at once, each blob is fetched by one, and found by the others', async (t) => {
  const folder = temporaryFolder(t);
  const blobs = Array.from({ length: 6 }, (_, seed) => blobOf(`x${seed}`, MIB));
  const nodes = await Promise.all(Array.from({ length: 8 }, () => node(t, folder, blobs)));
  await Promise.all(
    nodes.flatMap(({ open }) =>
      blobs.map(async (blob) => {
        const lease = await open(blob);
        t.true(holds(lease, blob));
        lease.release();
      }),
    ),
  );
  await isDone(nodes);
  t.is(nodes.flatMap(({ hub }) => hub.downloads).length, blobs.length);
  t.deepEqual(publishedIn(folder), blobs.map(({ address }) => address.sha256).sort());
  t.is(
    nodes.reduce((sum, { published }) => sum + published().published, 0),
    blobs.length,
  );
});

test('a node that holds its turn and is slow is not waited for beyond the patience', async (t) => {
  const folder = temporaryFolder(t);
  const blob = blobOf('a', MIB);
  const slow = await node(t, folder, [blob]);
  const quick = await node(t, folder, [blob], { openTimeoutMs: 6000 });
  let letGo = () => {};
  slow.hub.gate = new Promise((resolve) => {
    letGo = resolve;
  });
  const begun = new Promise((resolve) => slow.hub.once('download', resolve));
  const slowly = slow.open(blob);
  await begun;
  // On a busy machine an open may run out of its time; the fetch goes on.
  const lease = await eventually('it is fetched here too', () => quick.open(blob).catch(() => undefined), 100_000);
  t.true(holds(lease, blob));
  t.true(quick.lines.some((line) => /another node is slow/.test(JSON.stringify(line))));
  await isDone([quick]);
  letGo();
  t.true(holds(await slowly, blob));
  await isDone([slow]);
  t.is(quick.published().published, 1);
  t.is(slow.published().present, 1, 'it is not written twice');
});

test('a node whose fetch fails lets the next have its turn', async (t) => {
  const folder = temporaryFolder(t);
  const blob = blobOf('a', MIB);
  const [failing, other] = [await node(t, folder, [blob]), await node(t, folder, [blob])];
  failing.hub.failure = new TmaxError('EHOSTUNREACH', 'no answer');
  await t.throwsAsync(failing.open(blob));
  t.true(holds(await other.open(blob), blob));
  await isDone([other]);
  failing.hub.failure = undefined;
  t.true(holds(await failing.open(blob), blob));
  t.is(failing.hub.downloads.length, 1, 'it is there by now');
});

test('wrong bytes in the directory are replaced by who comes across them', async (t) => {
  const folder = temporaryFolder(t);
  const blob = blobOf('a', MIB);
  const first = await node(t, folder, [blob]);
  (await first.open(blob)).release();
  await isDone([first]);
  const { sha256 } = blob.address;
  const place = join(folder, 'blobs', sha256.slice(0, 2), sha256);
  writeFileSync(place, Buffer.alloc(MIB, 'x'));
  const second = await node(t, folder, [blob]);
  t.true(holds(await second.open(blob), blob));
  t.is(second.hub.downloads.length, 1);
  await isDone([second]);
  const third = await node(t, folder, [blob]);
  t.true(holds(await third.open(blob), blob));
  t.is(third.hub.downloads.length, 0);
});

test('a directory that is full or can’t be written to is told of once, and no open fails by it', async (t) => {
  const { path } = await memoryDisk(t, MIB);
  const blobs = Array.from({ length: 4 }, (_, seed) => blobOf(`x${seed}`, 2 * MIB));
  const limits = { reserve: { bytes: -(2 ** 40) }, limitBytes: undefined };
  const parts = await node(t, path, blobs, { destination: destinationOn(t, path, { limits }) });
  for (const blob of blobs) t.true(holds(await parts.open(blob), blob));
  await isDone([parts]);
  const { failed, skipped, failure, published } = parts.published();
  t.deepEqual([failed + skipped, published, failure?.errno], [4, 0, 'ENOSPC']);
  t.is(parts.lines.filter((line) => /images are not published/.test(JSON.stringify(line))).length, 1);
  t.deepEqual(publishedIn(path), []);
});

test('an open is answered before its blob is published, which a stop gives up', async (t) => {
  const blob = blobOf('a', MIB);
  let ended = false;
  const never: Destination = {
    name: 'never',
    has: async () => false,
    put: (_blob, _path, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          ended = true;
          reject(new TmaxError('EINTR', 'called off'));
        });
      }),
    close: async () => {},
  };
  const parts = await node(t, temporaryFolder(t), [blob], { destination: never });
  t.true(holds(await parts.open(blob), blob));
  t.is(parts.published().queued, 1);
  await parts.cache.close();
  t.true(ended);
});

test('a destination that does not answer costs an open its silence once', async (t) => {
  const blob = blobOf('a', MIB);
  const asked: string[] = [];
  const dead: Destination = {
    ...destinationOn(t, temporaryFolder(t), { limits: NO_LIMITS }),
    name: 'dead',
    claim: async () => {
      asked.push('claim');
      throw new TmaxError('EHOSTUNREACH', 'has not answered');
    },
    put: async () => {
      throw new TmaxError('EHOSTUNREACH', 'has not answered');
    },
    has: async () => false,
    close: async () => {},
  };
  const parts = await node(t, temporaryFolder(t), [blob], { destination: dead });
  t.true(holds(await parts.open(blob), blob));
  t.deepEqual(asked, ['claim']);
});
