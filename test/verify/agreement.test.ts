/**
 * Other readers find in an image what the proof's readers find: names, kinds, modes, owners, times and contents. One
 * after the other, since each mounts, extracts or compresses: together they would only wait for each other.
 */

import { closeSync, mkdirSync, openSync, readSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { ImageFile } from '../../src/verify/image-file.js';
import { proveSif, type SifPartition } from '../../src/verify/sif.js';
import { goodImage, goodImages, imageFile } from '../support/images.js';
import { judge } from '../support/judge.js';
import { buildSif, pseudorandomBytes, tinyImage } from '../support/sif-writer.js';
import { readTree } from '../support/squashfs-reader.js';
import { makeSquashfs, temporaryFolder, treeByKernel, treeByUnsquashfs } from '../support/tools.js';

function partitionOf(path: string): SifPartition {
  const image = ImageFile.open(path);
  try {
    return proveSif(image).partition;
  } finally {
    image.close();
  }
}

for (const { name } of goodImages) {
  test.serial(`unsquashfs extracts from ${name} what is read here`, async (t) => {
    const path = goodImage(name);
    const tree = await readTree(path, { contents: true });
    t.true(tree.size > 50);
    t.deepEqual(treeByUnsquashfs(path, partitionOf(path).offsetBytes), tree);
  });

  test.serial(`the kernel shows of ${name} what is read here, unless it lacks its padding`, async (t) => {
    const path = goodImage(name);
    const { offsetBytes, sizeBytes } = partitionOf(path);
    if (name.endsWith('-nopad')) {
      t.throws(() => treeByKernel(path, offsetBytes, sizeBytes));
      return;
    }
    t.deepEqual(treeByKernel(path, offsetBytes, sizeBytes), await readTree(path, { contents: true }));
  });
}

test.serial('a small image made without mksquashfs is read alike by the kernel and by unsquashfs', async (t) => {
  const path = imageFile('tiny', tinyImage(11, 300_000));
  const { offsetBytes, sizeBytes } = partitionOf(path);
  const tree = await readTree(path, { contents: true });
  t.is(tree.get('payload')?.content.split(' ')[0], '300000');
  t.deepEqual(treeByKernel(path, offsetBytes, sizeBytes), tree);
  t.deepEqual(treeByUnsquashfs(path, offsetBytes), tree);
});

/** A folder with something of everything that shapes an image: holes, tails, duplicates, a large directory. */
function variedFolder(): string {
  const folder = temporaryFolder();
  mkdirSync(join(folder, 'many'));
  for (let index = 0; index < 900; index += 1) {
    writeFileSync(join(folder, 'many', `a file with a name of some length ${index}`), `content ${index % 50}`);
  }
  const text = Buffer.from('a line that repeats itself, as lines do\n'.repeat(9000));
  writeFileSync(join(folder, 'text'), text);
  writeFileSync(join(folder, 'same text'), text);
  writeFileSync(join(folder, 'holes'), Buffer.concat([Buffer.alloc(600_000), text, Buffer.alloc(400_000)]));
  writeFileSync(join(folder, 'random'), pseudorandomBytes(5, 500_000));
  writeFileSync(join(folder, 'empty'), '');
  symlinkSync('text', join(folder, 'link'));
  mkdirSync(join(folder, 'empty folder'));
  return folder;
}

const VARIANTS: readonly (readonly string[])[] = [
  ['-comp', 'gzip'],
  ['-comp', 'gzip', '-Xcompression-level', '3', '-Xwindow-size', '12'],
  ['-comp', 'gzip', '-b', '4K'],
  ['-comp', 'gzip', '-b', '1M', '-no-fragments'],
  ['-comp', 'gzip', '-no-exports', '-no-xattrs', '-all-root'],
  ['-comp', 'gzip', '-noI', '-noD', '-noF', '-noX', '-noId'],
  ['-comp', 'gzip', '-always-use-fragments', '-no-duplicates'],
  ['-comp', 'zstd'],
  ['-comp', 'zstd', '-Xcompression-level', '3', '-b', '1M'],
  ['-comp', 'xz'],
  ['-comp', 'xz', '-Xdict-size', '64K', '-b', '256K'],
  ['-comp', 'lz4'],
  ['-comp', 'lz4', '-Xhc', '-b', '8K'],
];
for (const options of VARIANTS) {
  test.serial(`what mksquashfs ${options.join(' ')} makes is valid and read as the kernel reads it`, async (t) => {
    const folder = variedFolder();
    t.teardown(() => rmSync(folder, { recursive: true }));
    const bytes = buildSif({ squashfs: makeSquashfs(folder, options) });
    t.like(await judge(bytes, 'deep'), { outcome: 'valid', level: 'deep', warnings: [] });
    const path = imageFile(`variant-${options.join('')}`, bytes);
    const { offsetBytes, sizeBytes } = partitionOf(path);
    t.deepEqual(treeByKernel(path, offsetBytes, sizeBytes), await readTree(path, { contents: true }));
  });
}

test.serial('compressors and filters that are not decoded here are named, with what to do', async (t) => {
  const folder = variedFolder();
  t.teardown(() => rmSync(folder, { recursive: true }));
  // Machine code, for which mksquashfs finds the branch filter worth while.
  const program = openSync(process.execPath, 'r');
  const code = Buffer.alloc(1 << 20);
  readSync(program, code, 0, code.length, 16 << 20);
  closeSync(program);
  writeFileSync(join(folder, 'program'), code);
  const cases: readonly (readonly [string, readonly string[]])[] = [
    ['squashfs-compressor', ['-comp', 'lzo']],
    ['squashfs-compressor', ['-comp', 'lzma']],
    ['squashfs-xz-filter', ['-comp', 'xz', '-Xbcj', 'x86']],
  ];
  for (const [kind, options] of cases) {
    const verdict = await judge(buildSif({ squashfs: makeSquashfs(folder, options) }), 'deep');
    t.like(verdict, { outcome: 'unsupported', finding: { code: kind } });
    t.regex(verdict.outcome === 'valid' ? '' : verdict.finding.message, /rebuild/);
  }
});
