/**
 * The second pass of depth 3: the listings of all directories, in the order in which they lie in their table, so that
 * each block is decompressed once or twice however many directories there are. Listings must not overlap.
 */

import type { Pace } from '../pace.js';
import { GrowingArray } from './growing-array.js';
import type { DirectoryBody } from './inode.js';
import type { InodeMap } from './inode-map.js';
import { type ListingEntry, MAX_NAME_BYTES, readListing } from './listing.js';
import { BlockStarts, blocksOf, type MetadataCursor, type MetadataReader } from './metadata.js';

/** Entries that are read between two looks at the clock. */
const PACE_ENTRIES = 256;

export class DirectoryProof {
  readonly #listings: MetadataReader;
  readonly #inodeReader: MetadataReader;
  readonly #inodes: InodeMap;
  /** One row per directory that is not empty; the index columns say where its index stands, if it has one. */
  readonly #numbers = new GrowingArray(Uint32Array);
  readonly #blocks = new GrowingArray(Uint32Array);
  readonly #offsets = new GrowingArray(Uint16Array);
  readonly #sizes = new GrowingArray(Uint32Array);
  readonly #indexCounts = new GrowingArray(Uint16Array);
  readonly #indexBlocks = new GrowingArray(Float64Array);
  readonly #indexOffsets = new GrowingArray(Uint16Array);

  constructor(listings: MetadataReader, inodeReader: MetadataReader, inodes: InodeMap) {
    this.#listings = listings;
    this.#inodeReader = inodeReader;
    this.#inodes = inodes;
  }

  /** Takes in a directory, the cursor standing before its index, and moves the cursor behind it. */
  add(number: number, directory: DirectoryBody, cursor: MetadataCursor): void {
    const { indexCount, listingBlock, listingBytes, listingOffset } = directory;
    if (listingBytes > 0) {
      this.#numbers.push(number);
      this.#blocks.push(listingBlock);
      this.#offsets.push(listingOffset);
      this.#sizes.push(listingBytes);
      this.#indexCounts.push(indexCount);
      this.#indexBlocks.push(indexCount === 0 ? 0 : cursor.block);
      this.#indexOffsets.push(indexCount === 0 ? 0 : cursor.offset);
    } else if (indexCount > 0) {
      throw cursor.refuse('i_count', indexCount, '0, as the directory is empty');
    }
    for (let index = 0; index < indexCount; index += 1) readIndexEntry(cursor);
  }

  /** Proves all listings against the inodes. Throws a `Refusal`; errors: EIO, EINTR. */
  async run(pace: Pace): Promise<void> {
    const starts = new BlockStarts();
    for (const block of blocksOf(this.#listings)) {
      starts.add(block);
      if (pace.due) await pace.turn();
    }
    const order = Uint32Array.from({ length: this.#numbers.length }, (_, row) => row);
    order.sort((a, b) => this.#blocks.at(a) - this.#blocks.at(b) || this.#offsets.at(a) - this.#offsets.at(b));
    let end = { block: 0, offset: 0 };
    for (const row of order) {
      const block = this.#listings.extent.start + this.#blocks.at(row);
      const offset = this.#offsets.at(row);
      const found = `block ${this.#blocks.at(row)}, offset ${offset} for directory ${this.#numbers.at(row)}`;
      if (!starts.has(block)) throw this.#listings.refuse(block, 'start_block', found, 'the start of a block');
      if (block < end.block || (block === end.block && offset < end.offset)) {
        throw this.#listings.refuse(block, 'start_block', found, 'a listing that overlaps no other');
      }
      end = await this.#proveListing(row, this.#listings.cursor(block, offset), pace);
    }
  }

  async #proveListing(row: number, cursor: MetadataCursor, pace: Pace): Promise<{ block: number; offset: number }> {
    const parent = this.#numbers.at(row);
    const index = new DirectoryIndex(this.#indexCounts.at(row), () =>
      this.#inodeReader.cursor(this.#indexBlocks.at(row), this.#indexOffsets.at(row)),
    );
    let count = 0;
    for (const entry of readListing(cursor, this.#sizes.at(row))) {
      this.#inodes.name(entry, parent, cursor);
      if (entry.run !== undefined) index.pass(entry, entry.run, this.#listings.extent.start);
      count += 1;
      if (count % PACE_ENTRIES === 0 && pace.due) await pace.turn();
    }
    index.proveUsedUp(cursor);
    return { block: cursor.block, offset: cursor.offset };
  }
}

interface IndexEntry {
  readonly listingOffset: number;
  readonly block: number;
  readonly name: Buffer;
}

function readIndexEntry(cursor: MetadataCursor): IndexEntry {
  const listingOffset = cursor.u32();
  const block = cursor.u32();
  const nameBytes = cursor.u32() + 1;
  if (nameBytes > MAX_NAME_BYTES) throw cursor.refuse('index name size', nameBytes, `at most ${MAX_NAME_BYTES}`);
  return { listingOffset, block, name: cursor.bytes(nameBytes) };
}

/** The index of a large directory: by it the kernel finds names, so each entry must lead to the run that it names. */
class DirectoryIndex {
  readonly #openCursor: () => MetadataCursor;
  #left: number;
  #cursor: MetadataCursor | undefined;
  #next: IndexEntry | undefined;

  constructor(count: number, openCursor: () => MetadataCursor) {
    this.#left = count;
    this.#openCursor = openCursor;
    this.#advance();
  }

  /** The listing has come to a run of entries. */
  pass(first: ListingEntry, run: NonNullable<ListingEntry['run']>, tableStart: number): void {
    const next = this.#next;
    if (next === undefined || this.#cursor === undefined || next.listingOffset > run.listingOffset) return;
    const agrees =
      next.listingOffset === run.listingOffset &&
      next.block === run.block - tableStart &&
      Buffer.compare(next.name, first.name) === 0;
    if (!agrees) {
      const found = `offset ${next.listingOffset}, block ${next.block}, ${JSON.stringify(next.name.toString('utf8'))}`;
      const expected = `a run: offset ${run.listingOffset}, block ${run.block - tableStart}, ${JSON.stringify(first.name.toString('utf8'))}`;
      throw this.#cursor.refuse('directory index', found, expected);
    }
    this.#advance();
  }

  proveUsedUp(listing: MetadataCursor): void {
    if (this.#next === undefined) return;
    throw listing.refuse('directory index', `offset ${this.#next.listingOffset}`, 'a position in the listing');
  }

  #advance(): void {
    this.#next = undefined;
    if (this.#left === 0) return;
    this.#left -= 1;
    this.#cursor ??= this.#openCursor();
    this.#next = readIndexEntry(this.#cursor);
  }
}
