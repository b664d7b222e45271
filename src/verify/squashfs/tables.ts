/** Depth 3, the small tables: ids, fragments, extended attributes, and the export table. */

import type { Pace } from '../pace.js';
import { invalid, type Refusal } from '../refusal.js';
import type { DataExtents } from './data-extents.js';
import type { InodeMap } from './inode-map.js';
import { type IndexedTable, METADATA_BYTES } from './layout.js';
import { BlockStarts, blocksOf, type MetadataBlock, type MetadataReader } from './metadata.js';

const XATTR_PREFIX_MASK = 0xff;
/** "user.", "trusted.", "security." */
const XATTR_PREFIXES = 3;
const XATTR_OUT_OF_LINE = 0x100;
/** XATTR_NAME_MAX and XATTR_SIZE_MAX of Linux. */
const MAX_XATTR_NAME_BYTES = 255;
const MAX_XATTR_VALUE_BYTES = 65_536;
const OUT_OF_LINE_BYTES = 8;
const MIN_PAIR_BYTES = 8;

/** Where an entry stands: the number of the entry, its bytes, and the offset to name in a finding. */
interface Entry {
  readonly index: number;
  readonly block: MetadataBlock;
  readonly at: number;
}

/**
 * The entries of an indexed table, in order. Throws a `Refusal` if a block is damaged, does not begin where the index
 * says, or holds another number of bytes than its entries need.
 */
export function* entriesOf(reader: MetadataReader, table: IndexedTable): Generator<Entry> {
  let index = 0;
  let blockNumber = 0;
  for (const block of blocksOf(reader)) {
    const stated = table.blockStarts[blockNumber];
    if (block.start !== stated) {
      throw reader.refuse(block.start, 'index', `a block that the index does not name`, `a block at ${stated}`);
    }
    const left = (table.entryCount - index) * table.entryBytes;
    const expectedBytes = Math.min(METADATA_BYTES, left);
    if (block.content.length !== expectedBytes) {
      throw reader.refuse(block.start, 'metadata block length', block.content.length, String(expectedBytes));
    }
    for (let at = 0; at < block.content.length; at += table.entryBytes) {
      yield { index, block, at };
      index += 1;
    }
    blockNumber += 1;
  }
}

/** The ids themselves can be any number; that they are there is all there is to prove. */
export function proveIds(reader: MetadataReader, table: IndexedTable): void {
  for (const _ of entriesOf(reader, table));
}

export async function proveFragments(
  reader: MetadataReader,
  table: IndexedTable,
  baseOffset: number,
  extents: DataExtents,
  pace: Pace,
): Promise<void> {
  for (const { block, at } of entriesOf(reader, table)) {
    const start = block.content.readBigUInt64LE(at);
    if (start > Number.MAX_SAFE_INTEGER - baseOffset) {
      throw reader.refuse(block.start, 'fragment start', String(start), 'a position in the image');
    }
    extents.addFragment(baseOffset + Number(start), block.content.readUInt32LE(at + 8), block.start);
    if (at === 0 && pace.due) await pace.turn();
  }
}

/** The export table must lead from each inode's number to where it stands. */
export async function proveExports(
  reader: MetadataReader,
  table: IndexedTable,
  inodes: InodeMap,
  pace: Pace,
): Promise<void> {
  for (const { index, block, at } of entriesOf(reader, table)) {
    const offset = block.content.readUInt16LE(at);
    const inodeBlock = block.content.readUIntLE(at + 2, 6);
    if (!inodes.stands(index + 1, inodeBlock, offset)) {
      const found = `block ${inodeBlock}, offset ${offset}`;
      throw reader.refuse(block.start, 'export entry', found, `where inode ${index + 1} stands`);
    }
    if (at === 0 && pace.due) await pace.turn();
  }
}

/** Every set of extended attributes must be made of as many well-formed pairs as it says. */
export async function proveXattrs(
  setsReader: MetadataReader,
  sets: IndexedTable,
  pairsReader: MetadataReader,
  pace: Pace,
): Promise<void> {
  const starts = new BlockStarts();
  for (const block of blocksOf(pairsReader)) {
    starts.add(block);
    if (pace.due) await pace.turn();
  }
  const pairs = new XattrPairs(pairsReader, starts);
  for (const { block, at } of entriesOf(setsReader, sets)) {
    pairs.prove(block.content.readBigUInt64LE(at), block.content.readUInt32LE(at + 8), block.start);
    if (pace.due) await pace.turn();
  }
}

class XattrPairs {
  readonly #reader: MetadataReader;
  readonly #starts: BlockStarts;
  constructor(reader: MetadataReader, starts: BlockStarts) {
    this.#reader = reader;
    this.#starts = starts;
  }

  prove(reference: bigint, count: number, fieldOffset: number): void {
    const { block, offset } = this.#position(reference, fieldOffset);
    const cursor = this.#reader.cursor(block, offset);
    this.#reader.budget.spend(count * MIN_PAIR_BYTES, fieldOffset);
    for (let index = 0; index < count; index += 1) {
      const type = cursor.u16();
      const nameBytes = cursor.u16();
      if ((type & XATTR_PREFIX_MASK) >= XATTR_PREFIXES || type > (XATTR_OUT_OF_LINE | XATTR_PREFIX_MASK)) {
        throw cursor.refuse('xattr type', `0x${type.toString(16)}`, 'user, trusted or security');
      }
      if (nameBytes < 1 || nameBytes > MAX_XATTR_NAME_BYTES) {
        throw cursor.refuse('xattr name size', nameBytes, `1 to ${MAX_XATTR_NAME_BYTES}`);
      }
      cursor.skip(nameBytes);
      const valueBytes = cursor.u32();
      if ((type & XATTR_OUT_OF_LINE) === 0) {
        this.#proveValueSize(valueBytes, cursor.fieldOffset);
        cursor.skip(valueBytes);
      } else {
        if (valueBytes !== OUT_OF_LINE_BYTES) {
          throw cursor.refuse('xattr value size', valueBytes, `${OUT_OF_LINE_BYTES}, a reference`);
        }
        this.#proveOutOfLine(cursor.u64(), cursor.fieldOffset);
      }
    }
  }

  #proveOutOfLine(reference: bigint, fieldOffset: number): void {
    const { block, offset } = this.#position(reference, fieldOffset);
    const cursor = this.#reader.cursor(block, offset);
    const valueBytes = cursor.u32();
    this.#proveValueSize(valueBytes, fieldOffset);
    cursor.skip(valueBytes);
  }

  #proveValueSize(valueBytes: number, fieldOffset: number): void {
    this.#reader.budget.spend(valueBytes, fieldOffset);
    if (valueBytes <= MAX_XATTR_VALUE_BYTES) return;
    throw this.#refuse(fieldOffset, 'xattr value size', valueBytes, `at most ${MAX_XATTR_VALUE_BYTES}`);
  }

  #position(reference: bigint, fieldOffset: number): { block: number; offset: number } {
    const block = this.#reader.extent.start + Number(reference >> 16n);
    const offset = Number(reference & 0xffffn);
    if (!this.#starts.has(block)) throw this.#refuse(fieldOffset, 'xattr reference', block, 'the start of a block');
    return { block, offset };
  }

  #refuse(offsetBytes: number, field: string, found: number, expected: string): Refusal {
    return invalid({ code: 'squashfs-xattr', field, offsetBytes, found: String(found), expected });
  }
}
