/**
 * What an image says behind its superblock of how it was compressed. Only what a decoder must know, or what the kernel
 * refuses to mount, matters; a value that can't be is a sign of damage all the same.
 * Source: struct *_comp_opts in squashfs-tools and linux/fs/squashfs/*_wrapper.c.
 */

import type { ImageFile } from '../image-file.js';
import { invalid, type Refusal } from '../refusal.js';

export type Compressor = 'gzip' | 'xz' | 'lz4' | 'zstd';

const HEADER_BYTES = 2;
const STORED = 0x8000;
const MIN_XZ_DICTIONARY_BYTES = 8192;

/** Proves the options at `start`, which must lie before `end`; answers with how many bytes they take. */
export function proveCompressorOptions(image: ImageFile, start: number, end: number, compressor: Compressor): number {
  const optionBytes = compressor === 'zstd' ? 4 : 8;
  const blockBytes = HEADER_BYTES + optionBytes;
  if (start + blockBytes > end) throw refuse('header', start, 'missing', 'compressor options, as the flags say');
  const block = image.read(start, blockBytes);
  const header = block.readUInt16LE(0);
  if (header !== (STORED | optionBytes)) {
    throw refuse('header', start, header, `${STORED | optionBytes}: ${optionBytes} stored bytes`);
  }
  const options = block.subarray(HEADER_BYTES);
  const first = options.readUInt32LE(0);
  const firstAt = start + HEADER_BYTES;
  switch (compressor) {
    case 'gzip': {
      const window = options.readUInt16LE(4);
      if (first < 1 || first > 9) throw refuse('compression_level', firstAt, first, '1 to 9');
      if (window < 8 || window > 15) throw refuse('window_size', firstAt + 4, window, '8 to 15');
      break;
    }
    case 'xz': {
      const lowestBit = first & -first;
      const sized = first === lowestBit || first === lowestBit * 3;
      if (first < MIN_XZ_DICTIONARY_BYTES || !sized) {
        throw refuse('dictionary_size', firstAt, first, '2^n or 2^n + 2^(n+1), at least 8192');
      }
      break;
    }
    case 'lz4':
      if (first !== 1) throw refuse('version', firstAt, first, '1');
      break;
    case 'zstd':
      if (first < 1 || first > 22) throw refuse('compression_level', firstAt, first, '1 to 22');
      break;
  }
  return blockBytes;
}

function refuse(field: string, offsetBytes: number, found: string | number, expected: string): Refusal {
  return invalid({ code: 'squashfs-compressor-options', field, offsetBytes, found: String(found), expected });
}
