/** Depth 4: every data block and fragment is decompressed and must have the length that the inodes say. */

import { messageOf } from '../../errors.js';
import type { ImageFile } from '../image-file.js';
import type { Pace } from '../pace.js';
import { invalid, Refusal } from '../refusal.js';
import type { DataExtent, DataExtents } from './data-extents.js';
import type { Decompress } from './decompress.js';

/** Throws a `Refusal`; errors: EIO, EINTR. Holds one block at a time. */
export async function proveData(
  image: ImageFile,
  extents: DataExtents,
  decompress: Decompress,
  blockSizeBytes: number,
  pace: Pace,
): Promise<void> {
  const buffer = Buffer.allocUnsafe(blockSizeBytes);
  for (const extent of extents) {
    // The length of a stored block is a matter of its size word alone, which the depth before has proven.
    if (extent.stored) continue;
    const body = buffer.subarray(0, extent.diskBytes);
    image.readInto(body, extent.start);
    proveBlock(extent, body, decompress);
    if (pace.due) await pace.turn();
  }
}

function proveBlock(extent: DataExtent, body: Buffer, decompress: Decompress): void {
  const { maxBytes, minBytes, start } = extent;
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
