/**
 * The listing of a directory: runs of up to 256 entries behind a header, in ascending order of their names.
 * Source: struct squashfs_dir_header and squashfs_dir_entry in linux/fs/squashfs/squashfs_fs.h.
 */

import type { MetadataCursor } from './metadata.js';

const HEADER_BYTES = 12;
const ENTRY_BYTES = 8;
const MAX_RUN_ENTRIES = 256;
/** What the kernel reads; the kernel's own file names end at 255. */
export const MAX_NAME_BYTES = 256;
const SLASH = 0x2f;

export interface ListingEntry {
  /** Not terminated; a view that is valid until the next entry is read. */
  readonly name: Buffer;
  /** 1 to 7. */
  readonly type: number;
  readonly number: number;
  /** Reference to the inode: block start relative to the inode table, offset in the block. */
  readonly inodeBlock: number;
  readonly inodeOffset: number;
  /** Set in the first entry of a run: where its header stands. */
  readonly run: { readonly listingOffset: number; readonly block: number } | undefined;
}

/**
 * The entries of the listing of `listingBytes` at the cursor. Throws a `Refusal` at a name that is not legal or not
 * greater than the one before, and at a listing whose runs don't end where it does.
 */
export function* readListing(cursor: MetadataCursor, listingBytes: number): Generator<ListingEntry> {
  let previous: Buffer | undefined;
  for (let at = 0; at < listingBytes; ) {
    const run = { listingOffset: at, block: cursor.block };
    if (listingBytes - at < HEADER_BYTES) throw refuseSize(cursor, listingBytes, at + HEADER_BYTES);
    const count = cursor.u32() + 1;
    if (count > MAX_RUN_ENTRIES) throw cursor.refuse('directory header count', count, `at most ${MAX_RUN_ENTRIES}`);
    const inodeBlock = cursor.u32();
    const firstNumber = cursor.u32();
    at += HEADER_BYTES;
    for (let index = 0; index < count; index += 1) {
      const inodeOffset = cursor.u16();
      const number = firstNumber + cursor.i16();
      const type = cursor.u16();
      const nameBytes = cursor.u16() + 1;
      at += ENTRY_BYTES + nameBytes;
      if (nameBytes > MAX_NAME_BYTES) throw cursor.refuse('name size', nameBytes, `at most ${MAX_NAME_BYTES}`);
      if (at > listingBytes) throw refuseSize(cursor, listingBytes, at);
      const name = cursor.bytes(nameBytes);
      proveName(cursor, name, previous);
      previous = name;
      yield { name, type, number, inodeBlock, inodeOffset, run: index === 0 ? run : undefined };
    }
  }
}

function proveName(cursor: MetadataCursor, name: Buffer, previous: Buffer | undefined): void {
  const dots = name.length <= 2 && name.every((byte) => byte === 0x2e);
  if (dots || name.includes(0) || name.includes(SLASH)) {
    throw cursor.refuse('name', JSON.stringify(name.toString('utf8')), 'no "/", no NUL, not "." or ".."');
  }
  if (previous !== undefined && Buffer.compare(previous, name) >= 0) {
    const expected = `a name behind ${JSON.stringify(previous.toString('utf8'))}, as the directory is sorted`;
    throw cursor.refuse('name', JSON.stringify(name.toString('utf8')), expected);
  }
}

function refuseSize(cursor: MetadataCursor, listingBytes: number, needed: number): Error {
  return cursor.refuse('directory size', `a listing of ${listingBytes} bytes`, `at least the ${needed} of its entries`);
}
