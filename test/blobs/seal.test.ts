/** Blobs that the kernel watches over (fs-verity), and what happens where it can't. */

import { chmodSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { blobOf, blobPath, holds, setUp } from '../support/blob-cache.js';
import { hasVerity, memoryFolder, verityDisk } from '../support/loop-disk.js';

const BLOB = blobOf('a', 100_000);

test('where the file system can’t watch over a blob it is ready all the same, and nobody hears of it', async (t) => {
  const { add, open, store, lines } = await setUp(t, { root: join(await memoryFolder(t, 2 ** 20), 'cache') });
  add(BLOB);
  t.true(holds(await open(BLOB), BLOB));
  t.false(await store.seal(BLOB.address.sha256));
  t.false(await store.seal('f'.repeat(64)), 'what is not there');
  t.deepEqual(
    lines.filter(({ level }) => Number(level) >= 40),
    [],
  );
});

// Its kernel decides whether a machine can show these; what they need is there on Debian's own.
if (hasVerity) {
  test('a blob can’t be written to any more, and is evicted and fetched anew like any other', async (t) => {
    const { folder } = await verityDisk(t);
    const { add, open, cache, root, store, source } = await setUp(t, { root: join(folder, 'cache') });
    add(BLOB);
    (await open(BLOB)).release();
    const path = blobPath(root, BLOB);
    chmodSync(path, 0o644);
    t.throws(() => openSync(path, 'r+'), { code: 'EPERM' });
    t.true(await store.seal(BLOB.address.sha256), 'it is already');
    t.is(await cache.evict(BLOB.address.sha256), 'evicted');
    t.true(holds(await open(BLOB), BLOB));
    t.is(source.downloads.length, 2);
  });

  test('what its disk has changed is EIO, not wrong bytes; the rest can be read', async (t) => {
    const disk = await verityDisk(t);
    const root = join(disk.folder, 'cache');
    const first = await setUp(t, { root });
    first.add(BLOB);
    (await first.open(BLOB)).release();
    await first.cache.close();
    await disk.flip(blobPath(root, BLOB), 50_000);
    const { open, source } = await setUp(t, { root });
    const lease = await open(BLOB);
    t.deepEqual(source.downloads, [], 'nothing tells of it yet');
    const buffer = Buffer.alloc(4096);
    t.throws(() => readSync(lease.descriptor, buffer, 0, 4096, 49_152), { code: 'EIO' });
    t.is(readSync(lease.descriptor, buffer, 0, 4096, 0), 4096);
    t.true(buffer.equals(BLOB.content.subarray(0, 4096)));
    lease.release();
  });
}
