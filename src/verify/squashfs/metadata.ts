/**
 * Metadata: runs of up to 8192 bytes, each compressed on its own behind a 16-bit header, that form the tables. A
 * `MetadataReader` is confined to the extent of one table, a `MetadataCursor` reads across its blocks. Positions are
 * absolute in the SIF. Keeps a fixed number of blocks in memory.
 */

import { messageOf } from '../../errors.js';
import type { ImageFile } from '../image-file.js';
import { invalid, Refusal, unsupported } from '../refusal.js';
import type { Decompress } from './decompress.js';
import { GrowingArray } from './growing-array.js';
import { METADATA_BYTES, type TableExtent } from './layout.js';

const HEADER_BYTES = 2;
const STORED = 0x8000;
/** As many blocks as are kept decompressed per table: 256 KB. */
const CACHED_BLOCKS = 32;

/** What the metadata of one image may amount to, decompressed; more would take longer than anyone waits. */
const MAX_METADATA_BYTES = 1 << 30;

/** Counts what is decompressed and read for one image, so that small tables can't ask for endless work. */
export class MetadataBudget {
  #leftBytes = MAX_METADATA_BYTES;

  /** Throws a `Refusal` (unsupported) when it is used up. */
  spend(bytes: number, fileOffset: number): void {
    this.#leftBytes -= bytes;
    if (this.#leftBytes >= 0) return;
    throw unsupported({
      code: 'squashfs-too-large',
      field: 'metadata',
      offsetBytes: fileOffset,
      found: `more than ${MAX_METADATA_BYTES} bytes`,
      expected: `at most ${MAX_METADATA_BYTES} bytes`,
      message: `the image's metadata amounts to more than ${MAX_METADATA_BYTES} bytes, which is not proven; split the image`,
    });
  }
}

export interface MetadataBlock {
  readonly start: number;
  /** Where the next block begins, or the table ends. */
  readonly next: number;
  readonly stored: boolean;
  readonly content: Buffer;
}

/** What the readers of all tables of an image share. */
export interface MetadataTools {
  readonly image: ImageFile;
  readonly decompress: Decompress;
  readonly budget: MetadataBudget;
}

export class MetadataReader {
  /** Of the table, for findings: "inode", "directory", … */
  readonly name: string;
  readonly extent: TableExtent;
  readonly budget: MetadataBudget;
  readonly #image: ImageFile;
  readonly #decompress: Decompress;
  readonly #cache = new Map<number, MetadataBlock>();

  constructor(tools: MetadataTools, name: string, extent: TableExtent) {
    this.#image = tools.image;
    this.#decompress = tools.decompress;
    this.budget = tools.budget;
    this.name = name;
    this.extent = extent;
  }

  /** The block that begins at `start`. Throws a `Refusal` if there is none in the table or it is damaged. */
  block(start: number): MetadataBlock {
    const cached = this.#cache.get(start);
    if (cached !== undefined) return cached;
    const block = this.#read(start);
    if (this.#cache.size >= CACHED_BLOCKS) {
      for (const oldest of this.#cache.keys()) {
        this.#cache.delete(oldest);
        break;
      }
    }
    this.#cache.set(start, block);
    return block;
  }

  cursor(start: number, offset: number): MetadataCursor {
    return new MetadataCursor(this, start, offset);
  }

  refuse(offsetBytes: number, field: string, found: string | number, expected: string): Refusal {
    const code = `squashfs-${this.name.replaceAll(' ', '-')}`;
    return invalid({ code, field, offsetBytes, found: String(found), expected });
  }

  #read(start: number): MetadataBlock {
    const room = this.extent.end - start;
    if (start < this.extent.start || room <= HEADER_BYTES) {
      const { start: from, end } = this.extent;
      throw this.refuse(start, 'metadata block', 'outside of its table', `one between ${from} and ${end}`);
    }
    const bytes = this.#image.read(start, Math.min(room, HEADER_BYTES + METADATA_BYTES));
    const header = bytes.readUInt16LE(0);
    const stored = (header & STORED) !== 0;
    const size = header & ~STORED;
    if (size === 0 || size > bytes.length - HEADER_BYTES) {
      const expected = `1 to ${bytes.length - HEADER_BYTES}`;
      throw this.refuse(start, 'metadata block size', size, expected);
    }
    const next = start + HEADER_BYTES + size;
    const body = bytes.subarray(HEADER_BYTES, HEADER_BYTES + size);
    const content = stored ? body : this.#decompressed(start, body);
    this.budget.spend(content.length, start);
    if (content.length !== METADATA_BYTES && (next !== this.extent.end || content.length === 0)) {
      const expected = next === this.extent.end ? `1 to ${METADATA_BYTES}` : String(METADATA_BYTES);
      throw this.refuse(start, 'metadata block length', content.length, expected);
    }
    return { start, next, stored, content };
  }

  #decompressed(start: number, body: Buffer): Buffer {
    try {
      return this.#decompress(body, METADATA_BYTES);
    } catch (error) {
      if (error instanceof Refusal) throw error;
      throw this.refuse(start, 'metadata block', `damaged: ${messageOf(error)}`, `at most ${METADATA_BYTES} bytes`);
    }
  }
}

/** Every block of a table, in order; throws a `Refusal` at the first that is damaged. */
export function* blocksOf(reader: MetadataReader): Generator<MetadataBlock> {
  for (let at = reader.extent.start; at < reader.extent.end; ) {
    const block = reader.block(at);
    yield block;
    at = block.next;
  }
}

/** The starts of a table's blocks, to tell a reference to one from a reference into the middle. */
export class BlockStarts {
  readonly #starts = new GrowingArray(Float64Array);

  /** Blocks must come in ascending order. */
  add(block: MetadataBlock): void {
    this.#starts.push(block.start);
  }

  has(start: number): boolean {
    let low = 0;
    let high = this.#starts.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#starts.at(middle) < start) low = middle + 1;
      else high = middle;
    }
    return low < this.#starts.length && this.#starts.at(low) === start;
  }
}

export class MetadataCursor {
  readonly #reader: MetadataReader;
  #block: MetadataBlock;
  #offset: number;
  /** Where the field that was read last begins. */
  #fieldBlock: MetadataBlock;
  #fieldOffset: number;

  constructor(reader: MetadataReader, start: number, offset: number) {
    this.#reader = reader;
    this.#block = reader.block(start);
    this.#offset = offset;
    this.#fieldBlock = this.#block;
    this.#fieldOffset = offset;
    if (offset > this.#block.content.length) {
      throw reader.refuse(start, 'offset in metadata block', offset, `at most ${this.#block.content.length}`);
    }
  }

  /** Start of the block in which the next byte lies. */
  get block(): number {
    this.#advance();
    return this.#block.start;
  }

  /** Offset in the decompressed block at which the next byte lies. */
  get offset(): number {
    this.#advance();
    return this.#offset;
  }

  get atEnd(): boolean {
    return this.#offset === this.#block.content.length && this.#block.next === this.#reader.extent.end;
  }

  /** Where the field that was read last stands in the file; for a compressed block, where the block does. */
  get fieldOffset(): number {
    const { start, stored } = this.#fieldBlock;
    return stored ? start + HEADER_BYTES + this.#fieldOffset : start;
  }

  u16(): number {
    const at = this.#take(2);
    return at < 0 ? this.bytes(2).readUInt16LE(0) : this.#block.content.readUInt16LE(at);
  }

  i16(): number {
    const at = this.#take(2);
    return at < 0 ? this.bytes(2).readInt16LE(0) : this.#block.content.readInt16LE(at);
  }

  u32(): number {
    const at = this.#take(4);
    return at < 0 ? this.bytes(4).readUInt32LE(0) : this.#block.content.readUInt32LE(at);
  }

  u64(): bigint {
    const at = this.#take(8);
    return at < 0 ? this.bytes(8).readBigUInt64LE(0) : this.#block.content.readBigUInt64LE(at);
  }

  /** The next bytes; a view of the block where they lie in one. The caller bounds the length. */
  bytes(length: number): Buffer {
    const at = this.#take(length);
    if (at >= 0) return this.#block.content.subarray(at, at + length);
    const result = Buffer.allocUnsafe(length);
    for (let done = 0; done < length; ) {
      this.#advance();
      const part = Math.min(length - done, this.#block.content.length - this.#offset);
      if (part === 0) throw this.refuse('length', 'beyond the end of the table', `${length - done} more bytes`);
      this.#block.content.copy(result, done, this.#offset, this.#offset + part);
      this.#offset += part;
      done += part;
    }
    return result;
  }

  skip(length: number): void {
    for (let left = length; left > 0; ) {
      this.#advance();
      const part = Math.min(left, this.#block.content.length - this.#offset);
      if (part === 0) throw this.refuse('length', 'beyond the end of the table', `${left} more bytes`);
      this.#offset += part;
      left -= part;
    }
  }

  /** About the field that was read last. */
  refuse(field: string, found: string | number, expected: string): Refusal {
    return this.#reader.refuse(this.fieldOffset, field, found, expected);
  }

  /** Moves behind `length` bytes if they all lie in one block, and answers where they begin in it; else -1. */
  #take(length: number): number {
    this.#advance();
    const at = this.#offset;
    this.#fieldBlock = this.#block;
    this.#fieldOffset = at;
    if (at + length > this.#block.content.length) return -1;
    this.#offset = at + length;
    return at;
  }

  /** At the end of a block that is not the last: on to the next. */
  #advance(): void {
    if (this.#offset < this.#block.content.length || this.#block.next === this.#reader.extent.end) return;
    this.#block = this.#reader.block(this.#block.next);
    this.#offset = 0;
  }
}
