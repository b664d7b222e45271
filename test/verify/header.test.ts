/** Identity, SIF header and descriptors, superblock and table indexes: depth 1 and 2 of the proof. */

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'ava';
import { TmaxError } from '../../src/errors.js';
import { verifyImage } from '../../src/verify/verify.js';
import { goodImage, goodImageBytes, goodImages, imageFile } from '../support/images.js';
import { judge } from '../support/judge.js';
import { buildSif, partitionExtra, sha256Of, tinyImage } from '../support/sif-writer.js';
import { buildSquashfs } from '../support/squashfs-writer.js';

const PARTITION = 32_768;
const squashfs = buildSquashfs({ kind: 'directory', entries: { file: { kind: 'file', content: Buffer.from('x') } } });

/** A tiny image with bytes written over it. */
function damaged(offset: number, hex: string): Buffer {
  const bytes = tinyImage(1);
  Buffer.from(hex, 'hex').copy(bytes, offset);
  return bytes;
}

test('an image of the wrong size is refused before it is read', async (t) => {
  const path = imageFile('size', tinyImage(1));
  const verdict = await verifyImage(path, { sizeBytes: 5, sha256: 'unknown' }, 'header');
  t.like(verdict, { outcome: 'invalid', finding: { code: 'size-mismatch', found: '36864 bytes', expected: '5' } });
});

test('an image with another digest is refused, whoever computed the digest', async (t) => {
  const bytes = tinyImage(1);
  const path = imageFile('digest', bytes);
  const sizeBytes = bytes.length;
  const listed = sha256Of(tinyImage(2));
  const hashedHere = await verifyImage(path, { sizeBytes, sha256: listed }, 'deep');
  t.like(hashedHere, {
    outcome: 'invalid',
    finding: { code: 'sha256-mismatch', found: sha256Of(bytes), expected: listed },
  });
  const computedSha256 = sha256Of(tinyImage(3));
  const hashedBefore = await verifyImage(path, { sizeBytes, sha256: listed, computedSha256 }, 'deep');
  t.like(hashedBefore, { outcome: 'invalid', finding: { code: 'sha256-mismatch', found: computedSha256 } });
});

for (const { name, sizeBytes, sha256 } of goodImages) {
  test(`${name}, which apptainer built, has a valid header`, async (t) => {
    const verdict = await verifyImage(goodImage(name), { sizeBytes, sha256 }, 'header');
    t.like(verdict, { outcome: 'valid', level: 'header', architecture: 'amd64' });
  });
}

test('an image without padding is valid, with a warning that the kernel alone cannot mount it', async (t) => {
  const verdict = await judge(goodImageBytes('rich-gzip-nopad'), 'header');
  t.like(verdict, { outcome: 'valid', warnings: [{ code: 'squashfs-loop-truncation' }] });
});

test('bytes behind the last object are tolerated, with a warning', async (t) => {
  const verdict = await judge(Buffer.concat([tinyImage(1), Buffer.alloc(100)]), 'header');
  t.like(verdict, { outcome: 'valid', warnings: [{ code: 'sif-trailing-bytes', offsetBytes: 36_864 }] });
});

test('what apptainer tolerates in a header is tolerated', async (t) => {
  t.is((await judge(damaged(0, '00'.repeat(32)), 'header')).outcome, 'valid', 'no launch line');
  t.is((await judge(damaged(120, '00'.repeat(8)), 'header')).outcome, 'valid', 'no data length');
  const objects = [{ type: 0x4005, content: Buffer.alloc(300, 1) }];
  t.is((await judge(buildSif({ squashfs, objects }), 'header')).outcome, 'valid', 'a signature');
  const overlay = { type: 0x4004, content: Buffer.alloc(4096), extra: partitionExtra(2, 4, '02') };
  t.is((await judge(buildSif({ squashfs, objects: [overlay] }), 'header')).outcome, 'valid', 'an overlay');
  const unordered = buildSif({ squashfs });
  const [first, second] = [4096, 4096 + 585];
  const saved = Buffer.from(unordered.subarray(first, first + 585));
  unordered.copy(unordered, first, second, second + 585);
  saved.copy(unordered, second);
  t.is((await judge(unordered, 'header')).outcome, 'valid', 'descriptors out of order');
});

test('the architecture of the image is reported, whatever this machine can run', async (t) => {
  t.like(await judge(buildSif({ squashfs, architecture: 'arm64' }), 'header'), {
    outcome: 'valid',
    architecture: 'arm64',
  });
});

test('files that apptainer may run but that are no SIF with a squashfs are named for what they are', async (t) => {
  const ext3 = Buffer.alloc(4096);
  ext3.writeUInt16LE(0xef53, 1080);
  const launch = Buffer.from('#!/usr/bin/env run-singularity\n');
  const root = { type: 0x400a, content: Buffer.from('{}') };
  const forms: readonly (readonly [string, Buffer])[] = [
    ['bare-squashfs', squashfs],
    ['bare-squashfs', Buffer.concat([launch, squashfs])],
    ['bare-ext3', ext3],
    ['bare-ext3', Buffer.concat([launch, ext3])],
    ['ext3', buildSif({ squashfs: ext3, fileSystem: 2 })],
    ['encrypted-squashfs', buildSif({ squashfs: ext3, fileSystem: 5 })],
    ['gocryptfs', buildSif({ squashfs: ext3, fileSystem: 6 })],
    ['oci-sif', buildSif({ squashfs, partition: 3, objects: [root] })],
    ['squashfs-compressor', damaged(PARTITION + 20, '0200')],
    ['squashfs-compressor', damaged(PARTITION + 20, '0300')],
  ];
  for (const [code, bytes] of forms) {
    const verdict = await judge(bytes, 'header');
    t.like(verdict, { outcome: 'unsupported', finding: { code } });
  }
});

test('a finding names the field, its absolute offset, what stands there and what should', async (t) => {
  t.deepEqual(await judge(damaged(PARTITION + 26, '0000'), 'header'), {
    outcome: 'invalid',
    level: 'header',
    finding: {
      code: 'squashfs-superblock',
      field: 'no_ids',
      offsetBytes: PARTITION + 26,
      found: '0',
      expected: 'at least 1',
      message: `no_ids at byte ${PARTITION + 26} is 0, expected at least 1`,
    },
  });
});

const REFUSED: readonly (readonly [string, string, Buffer])[] = [
  ['a descriptor count of -1', 'sif-header', damaged(88, 'ff'.repeat(8))],
  ['a descriptor count of 2^31', 'sif-header', damaged(88, '0000008000000000')],
  ['a descriptor count of 2^63 - 1', 'sif-header', damaged(88, `${'ff'.repeat(7)}7f`)],
  ['a negative count of free descriptors', 'sif-header', damaged(80, 'ff'.repeat(8))],
  ['a descriptor table in the header', 'sif-header', damaged(96, '1000000000000000')],
  ['a data offset within the descriptors', 'sif-header', damaged(112, '0020000000000000')],
  ['another SIF version', 'sif-version', damaged(42, '3032')],
  ['a header of another architecture than the partition', 'sif-descriptor', damaged(45, '3034')],
  ['a negative object size', 'sif-descriptor', damaged(4096 + 25, 'ff'.repeat(8))],
  ['a negative object offset', 'sif-descriptor', damaged(4096 + 17, 'ff'.repeat(8))],
  [
    'objects that overlap',
    'sif-descriptor',
    damaged(4096 + 17, (PARTITION + 5).toString(16).replace(/(..)(..)/, '$2$1')),
  ],
  ['two objects of one number', 'sif-descriptor', damaged(4096 + 5, '02000000')],
  [
    'two primary partitions',
    'sif-primary-partition',
    buildSif({ squashfs, objects: [{ type: 0x4004, content: squashfs, extra: partitionExtra(1, 2, '02') }] }),
  ],
  [
    'a partition that is too short for a superblock',
    'squashfs-superblock',
    buildSif({ squashfs: squashfs.subarray(0, 90) }),
  ],
  ['a block size that is no power of two', 'squashfs-superblock', damaged(PARTITION + 12, '00000300')],
  ['an unknown compressor', 'squashfs-superblock', damaged(PARTITION + 20, '0900')],
  ['an inode table behind the directory table', 'squashfs-superblock', damaged(PARTITION + 64, 'ff0f')],
  ['a root inode behind its table', 'squashfs-superblock', damaged(PARTITION + 34, 'ffff')],
  ['tables that begin in the superblock', 'squashfs-superblock', damaged(PARTITION + 64, '1000')],
  ['an lz4 image without its options', 'squashfs-superblock', damaged(PARTITION + 20, '0500')],
];
for (const [what, code, bytes] of REFUSED) {
  test(`${what} is refused`, async (t) => {
    t.like(await judge(bytes, 'header'), { outcome: 'invalid', level: 'header', finding: { code } });
  });
}

test('what is no regular file is an error of the disk, not a verdict', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tmaxfs-verify-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const target = join(folder, 'target');
  writeFileSync(target, tinyImage(1));
  symlinkSync(target, join(folder, 'link'));
  mkdirSync(join(folder, 'folder'));
  execFileSync('mkfifo', [join(folder, 'fifo')]);
  for (const name of ['link', 'folder', 'fifo', 'missing']) {
    const error = await t.throwsAsync(verifyImage(join(folder, name), { sizeBytes: 1, sha256: '' }, 'header'));
    t.true(error instanceof TmaxError && error.errno === 'EIO', name);
  }
});

test('an aborted proof ends with EINTR', async (t) => {
  const signal = AbortSignal.abort();
  const error = await t.throwsAsync(
    verifyImage(goodImage('tiny-gzip'), { sizeBytes: 1, sha256: '' }, 'deep', { signal }),
  );
  t.true(error instanceof TmaxError && error.errno === 'EINTR');
});
