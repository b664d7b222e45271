/**
 * The compressed blocks and fragments of one image, packed so that they can travel to another thread: what depth 4 is
 * still to decompress once everything else is proven. 20 bytes a block.
 */

export interface DataBlocks {
  /** Absolute, in the SIF. */
  readonly starts: Float64Array<ArrayBuffer>;
  readonly diskBytes: Uint32Array<ArrayBuffer>;
  /** Length of the content: exactly that of a data block, at least and at most that of a fragment. */
  readonly minBytes: Uint32Array<ArrayBuffer>;
  readonly maxBytes: Uint32Array<ArrayBuffer>;
}

/** Consecutive parts of about `partBytes` on disk, each with memory of its own. At least one, which may be empty. */
export function splitBlocks(blocks: DataBlocks, partBytes: number): DataBlocks[] {
  const parts: DataBlocks[] = [];
  let first = 0;
  let bytes = 0;
  for (let index = 0; index < blocks.diskBytes.length; index += 1) {
    bytes += blocks.diskBytes[index] ?? 0;
    if (bytes < partBytes) continue;
    parts.push(slice(blocks, first, index + 1));
    first = index + 1;
    bytes = 0;
  }
  if (first < blocks.diskBytes.length || parts.length === 0) parts.push(slice(blocks, first, blocks.diskBytes.length));
  return parts;
}

/** Where the last of them ends; 0 where there are none. They lie in order. */
export function endOfBlocks({ starts, diskBytes }: DataBlocks): number {
  return (starts.at(-1) ?? 0) + (diskBytes.at(-1) ?? 0);
}

function slice({ starts, diskBytes, minBytes, maxBytes }: DataBlocks, from: number, to: number): DataBlocks {
  return {
    starts: starts.slice(from, to),
    diskBytes: diskBytes.slice(from, to),
    minBytes: minBytes.slice(from, to),
    maxBytes: maxBytes.slice(from, to),
  };
}
