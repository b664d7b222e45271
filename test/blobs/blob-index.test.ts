/** What the index knows after a look is what lies on disk, whoever has changed it, when, and while whatever went on. */

import { mkdirSync, readdirSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import fc from 'fast-check';
import { BlobIndex } from '../../src/blobs/blob-index.js';
import { CacheLayout } from '../../src/blobs/cache-layout.js';
import { type Lifetime, temporaryFolder } from '../support/temporary.js';

/** Few, so that they meet; two in one folder. */
const BLOBS = ['aa1', 'aa2', 'bb1', 'cc1'].map((start) => start.padEnd(64, '0'));

/** A change by this process is told to the index, one by another is not. */
const steps = fc.array(
  fc.record({
    kind: fc.constantFrom('look', 'publish', 'remove'),
    isOurs: fc.boolean(),
    sha256: fc.constantFrom(...BLOBS),
    /** Whether what comes next comes in another turn. */
    isLast: fc.boolean(),
  }),
  { maxLength: 24 },
);

/** Blobs of one name have one size. */
const sizeOf = (sha256: string) => sha256.charCodeAt(0) + sha256.charCodeAt(2);

/** An ext4 with inodes so small that they have no place for more than seconds. */
async function coarseDisk(t: Lifetime): Promise<string> {
  const folder = temporaryFolder(t);
  const [image, path] = [join(folder, 'image'), join(folder, 'mounted')];
  await execa('mkfs.ext4', ['-q', '-I', '128', image, '8M']);
  mkdirSync(path);
  await execa('mount', ['-o', 'loop', image, path]);
  t.teardown(() => execa('umount', ['-l', path]).then(() => undefined));
  return path;
}

function setUp(t: Lifetime, root = temporaryFolder(t)) {
  const layout = new CacheLayout(root);
  mkdirSync(layout.blobs);
  const publish = (sha256: string, sizeBytes: number) => {
    mkdirSync(join(layout.blob(sha256), '..'), { recursive: true });
    writeFileSync(join(layout.root, 'new'), Buffer.alloc(sizeBytes));
    renameSync(join(layout.root, 'new'), layout.blob(sha256));
  };
  const onDisk = () => BLOBS.filter((sha256) => readdirSync(layout.blobs, { recursive: true }).join().includes(sha256));
  return { layout, publish, onDisk, index: new BlobIndex(layout) };
}

test('after a look it knows what is there, whoever published and removed', async (t) => {
  await fc.assert(
    fc.asyncProperty(steps, async (sequence) => {
      const { layout, publish, onDisk, index } = setUp(t);
      let looking: Promise<unknown> = Promise.resolve();
      for (const { kind, isOurs, sha256, isLast } of sequence) {
        if (kind === 'look') {
          await looking;
          looking = index.look();
          // Else what follows happens meanwhile.
          if (isOurs) await looking;
        } else if (kind === 'publish') {
          publish(sha256, sizeOf(sha256));
          if (isOurs) index.add(sha256, sizeOf(sha256));
        } else {
          rmSync(layout.blob(sha256), { force: true });
          if (isOurs) index.remove(sha256);
        }
        if (isOurs && kind !== 'look') t.is(index.has(sha256), kind === 'publish');
        if (isLast) await new Promise(setImmediate);
      }
      await looking;
      await index.look();
      // What changed in the tick in which its folder was listed is found by the next.
      const known = BLOBS.filter((sha256) => index.has(sha256));
      t.deepEqual(known, onDisk());
      t.is(
        index.totalBytes,
        known.reduce((sum, sha256) => sum + sizeOf(sha256), 0),
      );
    }),
    { numRuns: 150 },
  );
});

test('what this process publishes while a look is under way is not taken for gone', async (t) => {
  const { publish, index } = setUp(t);
  const [first, second] = BLOBS as [string, string];
  publish(first, 1);
  await index.look();
  for (let round = 0; round < 20; round += 1) {
    const looking = index.look();
    publish(second, 1);
    index.add(second, 1);
    const { gone } = await looking;
    t.deepEqual(gone, []);
    t.true(index.has(second));
  }
});

test('what was taken for gone and is there is found again', async (t) => {
  const { publish, index } = setUp(t);
  const [sha256] = BLOBS as [string];
  publish(sha256, 1);
  while ((await index.look()).listed.size > 0) await new Promise(setImmediate);
  index.remove(sha256);
  await index.look();
  t.true(index.has(sha256));
});

test('where times are whole seconds, what changes within the second of a look is found by the next', async (t) => {
  const { layout, publish, index } = setUp(t, await coarseDisk(t));
  for (const sha256 of BLOBS) {
    publish(sha256, 1);
    await index.look();
    t.true(index.has(sha256));
  }
  t.is(statSync(join(layout.blobs, 'aa'), { bigint: true }).ctimeNs % 1_000_000_000n, 0n);
});

test('a folder in which nothing changed is not listed again', async (t) => {
  const { publish, index } = setUp(t);
  for (const sha256 of BLOBS) publish(sha256, 1);
  t.is((await index.look()).added.length, BLOBS.length);
  // Those that were listed in the tick of their last change are listed once more.
  while ((await index.look()).listed.size > 0) await new Promise(setImmediate);
  publish('bb2'.padEnd(64, '0'), 1);
  t.deepEqual([...(await index.look()).listed], ['bb']);
});

test('blobs come in the order of their last use, and what is none is named', async (t) => {
  const { layout, publish, index } = setUp(t);
  for (const sha256 of BLOBS) publish(sha256, 1);
  const aside = (name: string) => join(layout.blobs, 'aa', name);
  writeFileSync(aside('notes'), '');
  symlinkSync('/etc/passwd', aside('aa3'.padEnd(64, '0')));
  mkdirSync(aside('aa4'.padEnd(64, '0')));
  writeFileSync(aside('bb9'.padEnd(64, '0')), '');
  mkdirSync(join(layout.blobs, 'mine'));
  const { added, strays } = await index.look();
  t.deepEqual(
    added.map(({ usedAtMs }) => usedAtMs),
    added.map(({ usedAtMs }) => usedAtMs).sort((a, b) => a - b),
  );
  t.deepEqual(strays.map((path) => path.slice(layout.blobs.length + 1, layout.blobs.length + 7)).sort(), [
    'aa/aa3',
    'aa/aa4',
    'aa/bb9',
    'aa/not',
    'mine',
  ]);
});
