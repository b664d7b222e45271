/** Depth 4: every compressed data block and fragment is decompressed and must have the length that the inodes say. */

import { messageOf } from '../../errors.js';
import type { ImageFile } from '../image-file.js';
import type { Pace } from '../pace.js';
import { invalid, Refusal } from '../refusal.js';
import type { DataBlocks } from './data-blocks.js';
import type { Decompress } from './decompress.js';

/** Throws a `Refusal`; errors: EIO, EINTR. Holds one block at a time. */
export async function proveData(
  image: ImageFile,
  { starts, diskBytes, minBytes, maxBytes }: DataBlocks,
  decompress: Decompress,
  pace: Pace,
): Promise<void> {
  const buffer = Buffer.allocUnsafe(diskBytes.reduce((largest, bytes) => Math.max(largest, bytes), 0));
  for (const [index, start] of starts.entries()) {
    const body = buffer.subarray(0, diskBytes[index]);
    image.readInto(body, start);
    proveBlock(start, body, minBytes[index] ?? 0, maxBytes[index] ?? 0, decompress);
    if (pace.due) await pace.turn();
  }
}

function proveBlock(start: number, body: Buffer, minBytes: number, maxBytes: number, decompress: Decompress): void {
  const expected = minBytes === maxBytes ? `${maxBytes} bytes` : `${minBytes} to ${maxBytes} bytes`;
  const refuse = (found: string): Refusal =>
    invalid({ code: 'squashfs-data-block', field: 'data block', offsetBytes: start, found, expected });
  let contentBytes: number;
  try {
    contentBytes = decompress(body, maxBytes).length;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw refuse(`damaged: ${messageOf(error)}`);
  }
  if (contentBytes < minBytes || contentBytes > maxBytes) throw refuse(`${contentBytes} bytes`);
}
