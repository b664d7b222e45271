/**
 * How long the content of an xz block is, from its framing alone. The decoder knows no limit of its own, and 100 KB of
 * xz can hold a gigabyte; LZMA2 however states the length of each chunk before it, and a decoder writes no more.
 * Format: tukaani.org/xz/xz-file-format.txt, and the LZMA2 chunk header in liblzma/lzma/lzma2_decoder.c.
 */

import { unsupported } from '../refusal.js';

const STREAM_HEADER_BYTES = 12;
const STREAM_MAGIC = 'fd377a585a00';
const FILTER_LZMA2 = 0x21;
const CONTROL_END = 0;
const CONTROL_STORED_MAX = 2;
const CONTROL_COMPRESSED_MIN = 0x80;
/** From here on a chunk brings properties of its own, one byte. */
const CONTROL_PROPERTIES_MIN = 0xc0;

/** Bytes that one xz stream of one block (as mksquashfs writes) decompresses to. Throws a RangeError for other bytes. */
export function xzContentBytes(input: Buffer): number {
  if (input.toString('hex', 0, 6) !== STREAM_MAGIC) throw new RangeError('it does not begin with the magic of xz');
  let at = STREAM_HEADER_BYTES + blockHeaderBytes(input);
  let total = 0;
  for (;;) {
    const control = input.readUInt8(at);
    if (control === CONTROL_END) break;
    if (control > CONTROL_STORED_MAX && control < CONTROL_COMPRESSED_MIN)
      throw new RangeError('an LZMA2 chunk is invalid');
    const low = input.readUInt16BE(at + 1) + 1;
    if (control <= CONTROL_STORED_MAX) {
      total += low;
      at += 3 + low;
    } else {
      total += ((control & 0x1f) << 16) + low;
      at += (control >= CONTROL_PROPERTIES_MIN ? 6 : 5) + input.readUInt16BE(at + 3) + 1;
    }
  }
  // The block is padded to a multiple of four and followed by its check; then the index, which begins with a zero.
  const index = at + 1 + ((4 - ((at + 1) % 4)) % 4) + checkBytes(input);
  if (input.readUInt8(index) !== 0) throw new RangeError('it holds more than one xz block');
  return total;
}

function blockHeaderBytes(input: Buffer): number {
  const headerBytes = (input.readUInt8(STREAM_HEADER_BYTES) + 1) * 4;
  const flags = input.readUInt8(STREAM_HEADER_BYTES + 1);
  let at = STREAM_HEADER_BYTES + 2;
  const skipNumber = (): void => {
    while ((input.readUInt8(at) & 0x80) !== 0) at += 1;
    at += 1;
  };
  if ((flags & 0x40) !== 0) skipNumber();
  if ((flags & 0x80) !== 0) skipNumber();
  if ((flags & 3) !== 0 || input.readUInt8(at) !== FILTER_LZMA2) {
    throw unsupported({
      code: 'squashfs-xz-filter',
      message: 'the image is compressed with an xz branch filter, which is not decoded here; rebuild it without -Xbcj',
    });
  }
  return headerBytes;
}

function checkBytes(input: Buffer): number {
  const type = input.readUInt8(7) & 0x0f;
  return [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64][type] ?? 0;
}
