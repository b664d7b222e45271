/** Properties of the proof under random damage. */

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import fc from 'fast-check';
import { ImageFile } from '../../src/verify/image-file.js';
import { proveSif } from '../../src/verify/sif.js';
import { proveSuperblock } from '../../src/verify/squashfs/superblock.js';
import { injured, injuries } from '../support/damage.js';
import { goodImage, goodImageBytes, imageFile } from '../support/images.js';
import { judge } from '../support/judge.js';
import { buildSif } from '../support/sif-writer.js';
import { readTree } from '../support/squashfs-reader.js';
import { buildSquashfs, type TreeNode } from '../support/squashfs-writer.js';
import { treeByKernel } from '../support/tools.js';

// A process of its own: the memory of this one is that of other tests too.
test.serial('damaged images end in a verdict, in time, without an error and within 160 MB', (t) => {
  const program = fileURLToPath(new URL('../fuzz/verify.js', import.meta.url));
  const told = execFileSync(process.execPath, [program, '1500'], { encoding: 'utf8' });
  const [, valid, megabytes] = /, (\d+) valid all the same, at most (\d+) MB$/m.exec(told) ?? [];
  t.true(Number(valid) < 1500, told);
  t.true(Number(megabytes) < 160, told);
});

test.serial('what passes in spite of damage is read by the kernel as it is read here', async (t) => {
  let compared = 0;
  for (const damages of fc.sample(injuries, { numRuns: 5000, seed: 1 })) {
    const bytes = injured(damages);
    const untouched = damages.every(({ aim }) => aim !== 'tables' && aim !== 'superblock');
    if (untouched || (await judge(bytes, 'deep')).outcome !== 'valid') continue;
    const path = imageFile('passed', bytes);
    const image = ImageFile.open(path);
    const { offsetBytes, sizeBytes } = proveSif(image).partition;
    image.close();
    t.deepEqual(treeByKernel(path, offsetBytes, sizeBytes), await readTree(path, { contents: true }));
    compared += 1;
  }
  t.true(compared > 30);
});

test.serial('one bit of gzip metadata flipped: refused, or the tree is as it was', async (t) => {
  const good = goodImageBytes('rich-xattr-gzip');
  const image = ImageFile.open(goodImage('rich-xattr-gzip'));
  const superblock = proveSuperblock(image, proveSif(image).partition);
  image.close();
  const original = await readTree(goodImage('rich-xattr-gzip'), { contents: false });
  const { idTableStart, inodeTableStart, end } = superblock;
  // The id table's only block is too small to be compressed, so nothing but the digest covers it.
  const covered = (at: number): boolean => at < idTableStart - 14 || at >= idTableStart;
  const flips = fc.record({ at: fc.integer({ min: inodeTableStart, max: end - 1 }).filter(covered), bit: fc.nat(7) });
  let refused = 0;
  const property = fc.asyncProperty(flips, async ({ at, bit }) => {
    const bytes = Buffer.from(good);
    bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << bit), at);
    const verdict = await judge(bytes, 'structure');
    if (verdict.outcome !== 'valid') {
      refused += 1;
      return;
    }
    const tree = await readTree(imageFile('flipped', bytes), { contents: false });
    if (JSON.stringify([...tree]) !== JSON.stringify([...original])) throw new Error(`a flip at ${at} went unnoticed`);
  });
  await fc.assert(property, { numRuns: 200 });
  // What few flips change nothing: bits of a compressed stream that its decoder does not look at.
  t.true(refused > 100, `${refused}`);
});

test.serial('any tree that is written is valid, and read as it was written', async (t) => {
  const name = fc
    .string({ minLength: 1, maxLength: 60 })
    .filter((text) => !/[/\0]|^\.{1,2}$/.test(text) && text !== '__proto__');
  const { tree } = fc.letrec<{ tree: TreeNode; file: TreeNode; link: TreeNode; folder: TreeNode }>((tie) => ({
    file: fc.record({
      kind: fc.constant('file' as const),
      content: fc
        .tuple(fc.uint8Array({ maxLength: 300 }), fc.nat(60))
        .map(([part, times]) => Buffer.alloc(part.length * times, part)),
      mode: fc.nat(0o7777),
    }),
    link: fc.record({ kind: fc.constant('symlink' as const), target: fc.string({ minLength: 1, maxLength: 100 }) }),
    folder: fc.record({
      kind: fc.constant('directory' as const),
      entries: fc.dictionary(name, tie('tree'), { maxKeys: 8 }),
    }),
    tree: fc.oneof({ maxDepth: 4, depthSize: 'small' }, tie('file'), tie('link'), tie('folder')),
  }));
  const options = fc.record({
    blockSizeBytes: fc.constantFrom(4096, 8192, 131_072),
    compressMetadata: fc.boolean(),
    compressData: fc.boolean(),
    exportable: fc.boolean(),
  });
  const property = fc.asyncProperty(fc.dictionary(name, tree, { maxKeys: 30 }), options, async (entries, chosen) => {
    const root = { kind: 'directory', entries } as const;
    const bytes = buildSif({ squashfs: buildSquashfs(root, chosen) });
    const verdict = await judge(bytes, 'deep');
    if (verdict.outcome !== 'valid') throw new Error(verdict.finding.message);
    const read = await readTree(imageFile('written', bytes), { contents: true });
    if (read.size !== sizeOf(root)) throw new Error(`${read.size} entries instead of ${sizeOf(root)}`);
  });
  await fc.assert(property, { numRuns: 100 });
  t.pass();
});

function sizeOf(node: TreeNode): number {
  if (node.kind !== 'directory') return 1;
  return Object.values(node.entries).reduce((sum, child) => sum + sizeOf(child), 1);
}
