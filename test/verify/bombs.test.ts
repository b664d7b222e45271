/** Images made to exhaust whoever reads them end in a verdict within a second and in bounded memory. */

import { execFileSync } from 'node:child_process';
import { deflateSync } from 'node:zlib';
import { xz } from '@napi-rs/lzma';
import test from 'ava';
import { compressSync } from 'lz4-napi';
import * as v from 'valibot';
import type { Compressor } from '../../src/verify/squashfs/compressor-options.js';
import { imageFile } from '../support/images.js';
import { judge } from '../support/judge.js';
import { supportProgram } from '../support/paths.js';
import { buildSif, pseudorandomBytes, tinyImage } from '../support/sif-writer.js';
import { buildSquashfs, type DirectoryNode, type FileNode } from '../support/squashfs-writer.js';

const LIMIT_MS = 1000;
/** What `refuse-bomb` prints. */
const Taken = v.object({ everyRound: v.boolean(), cpuMs: v.number(), grownBytes: v.number() });
const MEBIBYTE = 1 << 20;
const PARTITION = 32_768;
const BLOCK_BYTES = 131_072;
const STORED = 1 << 24;

function file(content: Buffer): FileNode {
  return { kind: 'file', content };
}

function folder(entries: DirectoryNode['entries']): DirectoryNode {
  return { kind: 'directory', entries };
}

function u32(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, index) => {
    bytes.writeUInt32LE(value >>> 0, index * 4);
  });
  return bytes;
}

/** Replaces the only occurrence of a pattern. */
function replace(bytes: Buffer, pattern: Buffer, replacement: Buffer): void {
  const at = bytes.indexOf(pattern);
  if (at < 0 || bytes.indexOf(pattern, at + 1) >= 0) throw new Error('the pattern does not stand there exactly once');
  replacement.copy(bytes, at);
}

/** Offset of a 64-bit field of the superblock's. */
function table(bytes: Buffer, field: number): number {
  return PARTITION + Number(bytes.readBigUInt64LE(PARTITION + field));
}

/** A zstd frame of `count` blocks that each repeat one byte 128 KiB times. */
function zstdBomb(count: number): Buffer {
  const block = Buffer.alloc(4);
  const blocks = Array.from({ length: count }, (_, index) => {
    const copy = Buffer.from(block);
    copy.writeUIntLE((BLOCK_BYTES << 3) | (1 << 1) | (index === count - 1 ? 1 : 0), 0, 3);
    return copy;
  });
  // Magic, a frame header without content size, a window of 128 KiB.
  return Buffer.concat([Buffer.from('28b52ffd0038', 'hex'), ...blocks]);
}

const zeros = Buffer.alloc(64 * MEBIBYTE);
const COMPRESSED_BOMBS: Readonly<Record<Compressor, Buffer>> = {
  gzip: deflateSync(zeros),
  xz: xz.compressSync(zeros),
  lz4: compressSync(zeros).subarray(4),
  zstd: zstdBomb(512),
};

for (const compressor of ['gzip', 'xz', 'lz4', 'zstd'] as const) {
  test.serial(`a ${compressor} block that holds 64 MiB is given up at its limit`, (t) => {
    const path = imageFile(`bomb-${compressor}`, COMPRESSED_BOMBS[compressor]);
    const words = [supportProgram('refuse-bomb'), compressor, path];
    const { everyRound, cpuMs, grownBytes } = v.parse(
      Taken,
      JSON.parse(execFileSync(process.execPath, words).toString()),
    );
    t.true(everyRound);
    t.true(cpuMs < LIMIT_MS, `${cpuMs} ms`);
    t.true(grownBytes < 32 * MEBIBYTE, `${grownBytes} bytes`);
  });
}

async function refusedInTime(bytes: Buffer): Promise<string> {
  const started = performance.now();
  const verdict = await judge(bytes, 'deep');
  const elapsedMs = performance.now() - started;
  if (elapsedMs > LIMIT_MS) throw new Error(`it took ${elapsedMs} ms`);
  return verdict.outcome === 'valid' ? 'valid' : verdict.finding.code;
}

test.serial('a data block that inflates to far more than a block is refused', async (t) => {
  const bytes = buildSif({
    squashfs: buildSquashfs(folder({ file: file(pseudorandomBytes(1, BLOCK_BYTES)) }), { compressMetadata: false }),
  });
  const bomb = deflateSync(Buffer.alloc(64 * MEBIBYTE)).subarray(0, BLOCK_BYTES);
  bomb.copy(bytes, PARTITION + 96);
  replace(bytes, u32(BLOCK_BYTES, BLOCK_BYTES | STORED), u32(BLOCK_BYTES, bomb.length));
  t.is(await refusedInTime(bytes), 'squashfs-data-block');
});

test.serial('a metadata block that inflates to far more than 8 KiB is refused', async (t) => {
  const names = Array.from({ length: 2000 }, (_, index) => [`name ${index * 7919}`, file(Buffer.from('x'))] as const);
  const bytes = buildSif({ squashfs: buildSquashfs(folder(Object.fromEntries(names)), { compressMetadata: false }) });
  const start = table(bytes, 64);
  const bomb = deflateSync(Buffer.alloc(MEBIBYTE));
  bytes.writeUInt16LE(bomb.length, start);
  bomb.copy(bytes, start + 2);
  t.is(await refusedInTime(bytes), 'squashfs-inode-table');
});

test.serial('directories that contain each other, apart from the root, are refused', async (t) => {
  const tree = folder({ outer: folder({ middle: folder({ inner: folder({}) }) }) });
  const bytes = buildSif({ squashfs: buildSquashfs(tree, { compressMetadata: false }) });
  t.is((await judge(bytes, 'deep')).outcome, 'valid');
  // Written in the order inner, middle, outer, root, with 32 bytes each; numbered 4, 3, 2, 1.
  const inodes = table(bytes, 64) + 2;
  const offsets = { inner: 0, middle: 32, outer: 64 };
  const entry = (offset: number, number: number, name: string): Buffer =>
    Buffer.concat([u32(0, 0, number), Buffer.from([offset, 0, 0, 0, 1, 0, name.length - 1, 0]), Buffer.from(name)]);
  // The root now holds inner under the name of outer, and middle holds outer, which holds middle.
  replace(bytes, entry(offsets.outer, 2, 'outer'), entry(offsets.inner, 4, 'outer'));
  replace(bytes, entry(offsets.inner, 4, 'inner'), entry(offsets.outer, 2, 'inner'));
  bytes.writeUInt32LE(1, inodes + offsets.inner + 28);
  bytes.writeUInt32LE(3, inodes + offsets.outer + 28);
  t.is(await refusedInTime(bytes), 'squashfs-tree');
});

test.serial('a directory that contains itself is refused', async (t) => {
  const bytes = buildSif({ squashfs: buildSquashfs(folder({ self: folder({}) }), { compressMetadata: false }) });
  const root = table(bytes, 64) + 2 + 32;
  replace(bytes, u32(0, 0, 2), u32(0, 0, 1));
  bytes.writeUInt8(32, table(bytes, 72) + 2 + 12);
  bytes.writeUInt32LE(1, root + 28);
  t.is(await refusedInTime(bytes), 'squashfs-tree');
});

test.serial('an index that points at itself is refused', async (t) => {
  for (const [field, name] of [
    [48, 'id'],
    [80, 'fragment'],
    [88, 'export'],
  ] as const) {
    const bytes = tinyImage(1);
    const index = table(bytes, field);
    bytes.writeBigUInt64LE(BigInt(index - PARTITION), index);
    t.is(await refusedInTime(bytes), 'squashfs-index', name);
  }
});

test.serial('counts of 2^31 and more are refused for what they are', async (t) => {
  for (const count of [2 ** 31, 2 ** 32 - 1]) {
    const inodes = tinyImage(1, 1000, { exportable: false });
    inodes.writeUInt32LE(count, PARTITION + 4);
    t.is(await refusedInTime(inodes), 'squashfs-too-large');
    const exported = tinyImage(1);
    exported.writeUInt32LE(count, PARTITION + 4);
    t.is(await refusedInTime(exported), 'squashfs-index');
    const fragments = tinyImage(1);
    fragments.writeUInt32LE(count, PARTITION + 16);
    t.is(await refusedInTime(fragments), 'squashfs-index');
  }
});

test.serial('a file that claims 4 GiB of blocks in a small table is refused', async (t) => {
  const bytes = tinyImage(1, 1000, { compressMetadata: false });
  replace(bytes, u32(0, 12, 1000), u32(0, 12, 0xffff_ffff));
  // What follows the inode is taken for the sizes of its blocks, and no block can be of such a size.
  t.is(await refusedInTime(bytes), 'squashfs-data-extent');
});

test.serial('blocks that overlap are refused', async (t) => {
  const content = pseudorandomBytes(1, 2 * BLOCK_BYTES);
  const [first, second] = [content.subarray(0, BLOCK_BYTES), content.subarray(BLOCK_BYTES)];
  const tree = folder({ first: file(first), second: file(second) });
  const bytes = buildSif({ squashfs: buildSquashfs(tree, { compressMetadata: false }) });
  t.is((await judge(bytes, 'deep')).outcome, 'valid');
  replace(bytes, u32(96 + BLOCK_BYTES, 0xffff_ffff), u32(96 + 1000, 0xffff_ffff));
  t.is(await refusedInTime(bytes), 'squashfs-data-extent');
});
