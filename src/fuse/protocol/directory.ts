/** Fills the replies to READDIR and READDIRPLUS: records of variable length, each padded to 8 bytes. Pure. */

import type { Attributes, DirectoryEntry, InodeNumber, Timeouts } from '../../filesystem/contract.js';
import { UNKNOWN_INODE } from './constants.js';
import { entryValues, fileType } from './replies.js';
import { Dirent, EntryOut, OutHeader } from './structs.js';

/** DT_DIR and DT_REG are the file type bits of a mode, shifted (see readdir(3)). */
const DIRENT_TYPE_SHIFT = 12;
const DOT_ENTRIES = 2;

/** An open directory: its entries as they were when it was first read. "." and ".." come first. */
export interface DirectorySnapshot {
  readonly inode: InodeNumber;
  readonly entries: readonly DirectoryEntry[];
}

export interface ListingOptions {
  /** Position in the listing, as given with the entry before: 0 at the start. */
  readonly offset: bigint;
  /** Room of the kernel's buffer. */
  readonly sizeBytes: number;
  /** With attributes (READDIRPLUS), kept by the kernel for so long; without (READDIR) if undefined. */
  readonly attributesFor: { readonly timeouts: Timeouts } | undefined;
}

/** The whole reply, header included: as many entries as fit. An empty body means the end. */
export function listingReply(unique: bigint, directory: DirectorySnapshot, options: ListingOptions): Buffer {
  const reply = Buffer.alloc(OutHeader.size + options.sizeBytes);
  let end = OutHeader.size;
  const count = BigInt(directory.entries.length + DOT_ENTRIES);
  for (let position = options.offset; position < count; position += 1n) {
    const index = Number(position);
    const written = writeEntry(reply, end, entryAt(directory, index), BigInt(index + 1), options);
    if (written === 0) break;
    end += written;
  }
  OutHeader.write(reply, 0, { length: end, unique });
  return reply.subarray(0, end);
}

interface ListedEntry {
  readonly name: string;
  readonly inode: bigint;
  readonly typeBits: number;
  /** Undefined for "." and "..": the kernel must not count a lookup of those. */
  readonly attributes: Attributes | undefined;
}

const S_IFDIR = 0o040000;

function entryAt(directory: DirectorySnapshot, index: number): ListedEntry {
  if (index === 0) return { name: '.', inode: directory.inode, typeBits: S_IFDIR, attributes: undefined };
  const entry = directory.entries[index - DOT_ENTRIES];
  if (entry === undefined) return { name: '..', inode: UNKNOWN_INODE, typeBits: S_IFDIR, attributes: undefined };
  const { name, attributes } = entry;
  return { name, inode: attributes.inode, typeBits: fileType(attributes), attributes };
}

/** Writes one entry and returns its length, or 0 if it doesn't fit. */
function writeEntry(
  bytes: Buffer,
  offset: number,
  entry: ListedEntry,
  nextOffset: bigint,
  { attributesFor }: ListingOptions,
): number {
  const nameLength = Buffer.byteLength(entry.name);
  const prefix = attributesFor === undefined ? 0 : EntryOut.size;
  const length = padded(prefix + Dirent.size + nameLength);
  if (offset + length > bytes.length) return 0;
  if (attributesFor !== undefined && entry.attributes !== undefined) {
    EntryOut.write(bytes, offset, entryValues(entry.attributes, attributesFor.timeouts));
  }
  const direntAt = offset + prefix;
  Dirent.write(bytes, direntAt, {
    inode: entry.inode,
    nextOffset,
    nameLength,
    type: entry.typeBits >> DIRENT_TYPE_SHIFT,
  });
  bytes.write(entry.name, direntAt + Dirent.size);
  return length;
}

function padded(length: number): number {
  return (length + 7) & ~7;
}
