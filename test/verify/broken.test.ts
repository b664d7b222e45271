/**
 * Every damaged image that was handed over, judged at level `deep` with the expectation taken from the damaged file
 * itself, so that neither its size nor its digest gives it away: what the form alone tells, and at which depth.
 */

import test from 'ava';
import { verifyImage } from '../../src/verify/verify.js';
import { brokenImages, imageFile } from '../support/images.js';
import { judge } from '../support/judge.js';

/** Depth and kind of the finding that each must lead to. */
const REFUSED: Readonly<Record<string, readonly [string, string]>> = {
  'data-block-bitflip': ['deep', 'squashfs-data-block'],
  'data-fragment-bitflip': ['deep', 'squashfs-data-block'],
  'desc-all-zeroed': ['header', 'sif-header'],
  'desc-part-fs-9': ['header', 'sif-descriptor'],
  'desc-part-fs-ext3': ['header', 'sif-descriptor'],
  'desc-part-offset-past-eof': ['header', 'sif-descriptor'],
  'desc-part-size-0': ['header', 'squashfs-superblock'],
  'desc-part-size-past-eof': ['header', 'sif-descriptor'],
  'desc-part-type-data': ['header', 'sif-primary-partition'],
  'desc-swapped-extents': ['header', 'squashfs-superblock'],
  'file-all-zeros': ['header', 'sif-magic'],
  'file-html-page': ['header', 'sif-magic'],
  'file-json-error': ['header', 'sif-too-short'],
  'file-zero-length': ['header', 'sif-too-short'],
  'hdr-arch-zz': ['header', 'sif-architecture'],
  'hdr-dfree-eq-total': ['header', 'sif-header'],
  'hdr-dsize-short': ['header', 'sif-header'],
  'hdr-dtotal-2e9': ['header', 'sif-header'],
  'hdr-magic-flip': ['header', 'sif-magic'],
  'hole-4KiB-data': ['deep', 'squashfs-data-block'],
  'hole-first-4KiB': ['header', 'sif-magic'],
  'hole-tail-64KiB': ['header', 'squashfs-xattr-table'],
  'json-zeroed': ['header', 'sif-json'],
  'meta-dir-last': ['structure', 'squashfs-directory-table'],
  'meta-export': ['structure', 'squashfs-export-table'],
  'meta-fragidx-past-eof': ['header', 'squashfs-index'],
  'meta-ididx-flip': ['header', 'squashfs-index'],
  'meta-inode-hdr-flag': ['structure', 'squashfs-inode-table'],
  'meta-inode-last': ['structure', 'squashfs-inode-table'],
  'meta-xattr-id': ['structure', 'squashfs-xattr-id-table'],
  'meta-zero-dir-table': ['structure', 'squashfs-directory-table'],
  'meta-zero-tail-tables': ['header', 'squashfs-xattr-table'],
  'sb-block-64K': ['header', 'squashfs-superblock'],
  'sb-blocklog-16': ['header', 'squashfs-superblock'],
  'sb-bytes_used-plus1GiB': ['header', 'squashfs-superblock'],
  'sb-dirtab-past-eof': ['header', 'squashfs-superblock'],
  'sb-exporttab-plus8': ['header', 'squashfs-index'],
  'sb-flags-compopt': ['header', 'squashfs-compressor-options'],
  'sb-frags-plus600': ['header', 'squashfs-index'],
  'sb-ids-0': ['header', 'squashfs-superblock'],
  'sb-idtab-plus8': ['header', 'squashfs-index'],
  'sb-inodes-plus1': ['structure', 'squashfs-superblock'],
  'sb-magic-flip': ['header', 'squashfs-superblock'],
  'sb-rootinode-bitflip': ['structure', 'squashfs-superblock'],
  'sb-version-3.1': ['header', 'squashfs-superblock'],
  'sb-xattrtab-minus8': ['header', 'squashfs-index'],
  'sem-dir-size': ['structure', 'squashfs-directory-table'],
  'sem-dirent-count': ['structure', 'squashfs-directory-table'],
  'sem-dirent-name-slash': ['structure', 'squashfs-directory-table'],
  'sem-file-frag-index': ['structure', 'squashfs-inode-table'],
  'sem-frag-start': ['structure', 'squashfs-data-extent'],
  'sem-inode-type-15': ['structure', 'squashfs-inode-table'],
  // Its maker holds that only sha256 can see it unless the order of names breaks, which it does here.
  'sem-meta-bitflip-filename': ['structure', 'squashfs-directory-table'],
  'sem-symlink-size': ['structure', 'squashfs-inode-table'],
  'trunc-1KiB-short': ['header', 'sif-header'],
  'trunc-50pct': ['header', 'sif-header'],
  'trunc-hdr-only-32176': ['header', 'sif-header'],
  'trunc-last-pad-byte': ['header', 'sif-header'],
  // Decoders differ: unsquashfs extracts other bytes from it without a word.
  'zstd-data-zero-1KiB': ['deep', 'squashfs-data-block'],
};

/** The compressor's number was damaged into that of lzma: it can't be told from an lzma image, and is refused as one. */
const UNSUPPORTED: Readonly<Record<string, string>> = { 'sb-comp-lzma': 'squashfs-compressor' };

/** What no reading of the form can see, with the warnings that are given. */
const VALID: Readonly<Record<string, { readonly why: string; readonly warnings: readonly string[] }>> = {
  'append-4KiB-garbage': { why: 'apptainer tolerates bytes behind the last object', warnings: ['sif-trailing-bytes'] },
  'data-stored-block-bitflip': { why: 'a block that is stored as it is can hold any bytes', warnings: [] },
  'hdr-launch-bitflip': { why: 'the launch line can be any text', warnings: [] },
};

const broken = brokenImages();

test('each damaged image has its expected outcome stated once', (t) => {
  const stated = [...Object.keys(REFUSED), ...Object.keys(UNSUPPORTED), ...Object.keys(VALID)];
  t.deepEqual(stated.sort(), broken.map(({ name }) => name).sort());
});

for (const { bytes, name, why } of broken) {
  test(`${name} (${why})`, async (t) => {
    const verdict = await judge(bytes, 'deep');
    const valid = VALID[name];
    if (verdict.outcome === 'valid') {
      t.deepEqual(
        verdict.warnings.map(({ code }) => code),
        valid?.warnings,
      );
      return;
    }
    const [level, code] = REFUSED[name] ?? ['header', UNSUPPORTED[name]];
    t.like(verdict, { outcome: name in UNSUPPORTED ? 'unsupported' : 'invalid', level, finding: { code } });
    // Level `structure` must come to the same, or to nothing where only the data is damaged.
    t.is((await judge(bytes, 'structure')).outcome, level === 'deep' ? 'valid' : verdict.outcome);
  });
}

test('the digest of the listing gives every damaged image away', async (t) => {
  for (const { bytes, name } of broken) {
    const path = imageFile('damaged', bytes);
    const verdict = await verifyImage(path, { sizeBytes: bytes.length, sha256: 'of the undamaged image' }, 'header');
    t.like(verdict, { outcome: 'invalid', finding: { code: 'sha256-mismatch' } }, name);
  }
});
