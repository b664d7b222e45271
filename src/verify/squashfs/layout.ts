/**
 * Depth 2, second half: where each table lies, worked out from the image's end towards its start as the kernel does
 * when it mounts: each index must end exactly where the next table begins, and its entries must be the ascending
 * starts of metadata blocks. Only indexes are read here, no metadata.
 * Source: linux/fs/squashfs/super.c, id.c, export.c, fragment.c, xattr_id.c. All positions absolute in the SIF.
 */

import type { ImageFile } from '../image-file.js';
import { invalid, type Refusal, unsupported } from '../refusal.js';
import { SUPERBLOCK_BYTES, type Superblock } from './superblock.js';

/** A metadata block decompresses to this, the last of a table to as many bytes as are left. */
export const METADATA_BYTES = 8192;
const METADATA_HEADER_BYTES = 2;
const MAX_METADATA_ON_DISK_BYTES = METADATA_HEADER_BYTES + METADATA_BYTES;
const INDEX_ENTRY_BYTES = 8;
const XATTR_HEADER_BYTES = 16;
/** Bounds of what a proof keeps in memory (a few bytes each); a root file system of 100,000 files is a large one. */
const MAX_INODES = 1 << 22;
const MAX_INDEXED_ENTRIES = 1 << 22;
const MAX_XATTR_SETS = 1 << 20;

/** The bytes [start, end) of metadata blocks that follow each other. */
export interface TableExtent {
  readonly start: number;
  readonly end: number;
}

/** A table of fixed-size entries: its metadata blocks, and the start of each as the index states it. */
export interface IndexedTable extends TableExtent {
  readonly entryCount: number;
  readonly entryBytes: number;
  readonly blockStarts: readonly number[];
}

export interface Layout {
  readonly superblock: Superblock;
  readonly inodes: TableExtent;
  readonly directories: TableExtent;
  readonly fragments: IndexedTable | undefined;
  readonly exports: IndexedTable | undefined;
  readonly ids: IndexedTable;
  readonly xattrs: { readonly pairs: TableExtent; readonly sets: IndexedTable } | undefined;
}

/** Proves the order of the tables and their indexes. Throws a `Refusal`; errors: EIO. */
export function readLayout(image: ImageFile, superblock: Superblock): Layout {
  const { baseOffset, directoryTableStart, inodeTableStart } = superblock;
  let next = superblock.end;
  const xattrs = readXattrLayout(image, superblock);
  if (xattrs !== undefined) next = xattrs.pairs.start;

  const index = (name: string, start: number, entryCount: number, entryBytes: number): IndexedTable => {
    const maxEntries = MAX_INDEXED_ENTRIES;
    const table = readIndex(image, baseOffset, { name, start, end: next, entryCount, entryBytes, maxEntries });
    next = table.start;
    return table;
  };
  const ids = index('id', superblock.idTableStart, superblock.idCount, 4);
  const exports =
    superblock.exportTableStart === undefined
      ? undefined
      : index('export', superblock.exportTableStart, superblock.inodeCount, 8);
  let fragments: IndexedTable | undefined;
  if (superblock.fragmentCount > 0) {
    if (superblock.fragmentTableStart === undefined) {
      const found = 'absent';
      const expected = `a table of ${superblock.fragmentCount} fragments`;
      throw invalid({ code: 'squashfs-index', field: 'fragment table', offsetBytes: baseOffset + 80, found, expected });
    }
    fragments = index('fragment', superblock.fragmentTableStart, superblock.fragmentCount, 16);
  }
  if (directoryTableStart > next) {
    throw invalid({
      code: 'squashfs-superblock',
      field: 'directory_table_start',
      offsetBytes: baseOffset + 72,
      found: String(directoryTableStart - baseOffset),
      expected: `at most ${next - baseOffset}, where the next table begins`,
    });
  }
  if (superblock.inodeCount > MAX_INODES) {
    throw refuseAsTooLarge(baseOffset + 4, 'inode', superblock.inodeCount, MAX_INODES);
  }
  return {
    superblock,
    inodes: { start: inodeTableStart, end: directoryTableStart },
    directories: { start: directoryTableStart, end: next },
    fragments,
    exports,
    ids,
    xattrs,
  };
}

function readXattrLayout(image: ImageFile, superblock: Superblock): Layout['xattrs'] {
  const { baseOffset, end, xattrTableStart } = superblock;
  if (xattrTableStart === undefined) return undefined;
  const refuse = (field: string, offset: number, found: string | number | bigint, expected: string): Refusal =>
    invalid({
      code: 'squashfs-xattr-table',
      field,
      offsetBytes: xattrTableStart + offset,
      found: String(found),
      expected,
    });
  if (end - xattrTableStart < XATTR_HEADER_BYTES) {
    throw refuse('header', 0, `${end - xattrTableStart} bytes before the image's end`, `${XATTR_HEADER_BYTES}`);
  }
  const header = image.read(xattrTableStart, XATTR_HEADER_BYTES);
  const setCount = header.readUInt32LE(8);
  if (setCount === 0) throw refuse('xattr_ids', 8, 0, 'at least 1');
  const sets = readIndex(image, baseOffset, {
    name: 'xattr id',
    start: xattrTableStart + XATTR_HEADER_BYTES,
    blocksEnd: xattrTableStart,
    end,
    entryCount: setCount,
    entryBytes: 16,
    maxEntries: MAX_XATTR_SETS,
  });
  const pairsStart = header.readBigUInt64LE(0);
  if (pairsStart < SUPERBLOCK_BYTES || pairsStart >= sets.start - baseOffset) {
    const expected = `${SUPERBLOCK_BYTES} to ${sets.start - baseOffset - 1}`;
    throw refuse('xattr_table_start', 0, pairsStart, expected);
  }
  return { pairs: { start: baseOffset + Number(pairsStart), end: sets.start }, sets };
}

interface IndexClaim {
  readonly name: string;
  /** Where the index begins. */
  readonly start: number;
  /** Where the table's blocks end, if not where the index begins. */
  readonly blocksEnd?: number;
  /** Where the index must end. */
  readonly end: number;
  readonly entryCount: number;
  readonly entryBytes: number;
  readonly maxEntries: number;
}

function readIndex(image: ImageFile, baseOffset: number, claim: IndexClaim): IndexedTable {
  const { name, start, end, entryCount, entryBytes } = claim;
  const refuse = (offsetBytes: number, found: string | number | bigint, expected: string): Refusal =>
    invalid({ code: 'squashfs-index', field: `${name} table`, offsetBytes, found: String(found), expected });
  const blockCount = Math.ceil((entryCount * entryBytes) / METADATA_BYTES);
  const indexBytes = blockCount * INDEX_ENTRY_BYTES;
  if (start + indexBytes !== end) {
    const found = start > end ? `behind the next table at ${end}` : `an index of ${end - start} bytes`;
    throw refuse(start, found, `an index of ${indexBytes}, for ${entryCount} entries`);
  }
  if (entryCount > claim.maxEntries) throw refuseAsTooLarge(start, name, entryCount, claim.maxEntries);
  const bytes = image.read(start, indexBytes);
  const blocksEnd = claim.blocksEnd ?? start;
  const blockStarts: number[] = [];
  for (let at = 0; at < indexBytes; at += INDEX_ENTRY_BYTES) {
    const value = bytes.readBigUInt64LE(at);
    const previous = blockStarts.at(-1);
    const minimum = previous === undefined ? SUPERBLOCK_BYTES : previous - baseOffset + METADATA_HEADER_BYTES + 1;
    const maximum =
      previous === undefined ? blocksEnd - baseOffset : previous - baseOffset + MAX_METADATA_ON_DISK_BYTES;
    if (value < minimum || value > maximum) throw refuse(start + at, value, `${minimum} to ${maximum}`);
    blockStarts.push(baseOffset + Number(value));
  }
  const [first] = blockStarts;
  const last = blockStarts.at(-1);
  if (first === undefined || last === undefined) throw refuse(start, 'without blocks', 'at least one');
  const lastBytes = blocksEnd - last;
  if (lastBytes <= METADATA_HEADER_BYTES || lastBytes > MAX_METADATA_ON_DISK_BYTES) {
    const expected = `1 to ${METADATA_BYTES} bytes before the block's end at ${blocksEnd - baseOffset}`;
    throw refuse(end - INDEX_ENTRY_BYTES, last - baseOffset, expected);
  }
  return { start: first, end: blocksEnd, entryCount, entryBytes, blockStarts };
}

function refuseAsTooLarge(offsetBytes: number, field: string, found: number, limit: number): Refusal {
  return unsupported({
    code: 'squashfs-too-large',
    field,
    offsetBytes,
    found: String(found),
    expected: `at most ${limit}`,
    message: `the image claims ${found} ${field} entries; more than ${limit} are not proven: split it`,
  });
}
