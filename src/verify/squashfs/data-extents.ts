/**
 * Where the data blocks and fragments of an image lie, gathered while the metadata is read and handed to the depth
 * that decompresses them. Identical extents (duplicate files) count once; others must not overlap, which also bounds
 * what can be decompressed by what the file holds. 20 bytes per block.
 */

import { invalid, type Refusal, unsupported } from '../refusal.js';
import type { DataBlocks } from './data-blocks.js';
import { GrowingArray } from './growing-array.js';

/** Bit of a size word that says: not compressed. */
const STORED = 1 << 24;
/** About 512 GiB of files in blocks of 128 KiB, holes included. */
const MAX_BLOCKS = 1 << 22;

export class DataExtents {
  readonly #start: number;
  readonly #end: number;
  readonly #blockSizeBytes: number;
  readonly #starts = new GrowingArray(Float64Array);
  readonly #words = new GrowingArray(Uint32Array);
  readonly #minBytes = new GrowingArray(Uint32Array);
  readonly #maxBytes = new GrowingArray(Uint32Array);
  /** Fragment i is extent i; data blocks follow. */
  #fragmentCount = 0;
  #blockCount = 0;
  #order = new Uint32Array();

  /** Data must lie in [start, end). */
  constructor(start: number, end: number, blockSizeBytes: number) {
    this.#start = start;
    this.#end = end;
    this.#blockSizeBytes = blockSizeBytes;
  }

  get fragmentCount(): number {
    return this.#fragmentCount;
  }

  /** Called for all fragments before any block. `fieldOffset`: where its entry stands. */
  addFragment(start: number, word: number, fieldOffset: number): void {
    this.#prove('fragment', start, word, fieldOffset);
    this.#push(start, word, 0, this.#blockSizeBytes);
    this.#fragmentCount += 1;
  }

  /** A tail of `bytes` at `offset` in a fragment, whose index the caller has found to exist. */
  useFragment(index: number, offset: number, bytes: number, fieldOffset: number): void {
    const end = offset + bytes;
    const stored = (this.#words.at(index) & STORED) !== 0;
    const room = stored ? diskBytesOf(this.#words.at(index)) : this.#blockSizeBytes;
    if (end > room) {
      throw refuse('fragment offset', fieldOffset, `${offset} for ${bytes} bytes`, `an end at ${room} at most`);
    }
    if (end > this.#minBytes.at(index)) this.#minBytes.set(index, end);
  }

  /** Called before a file's blocks are read: that many are to come. */
  announce(count: number, fieldOffset: number): void {
    this.#blockCount += count;
    if (this.#blockCount <= MAX_BLOCKS) return;
    throw unsupported({
      code: 'squashfs-too-large',
      field: 'file_size',
      offsetBytes: fieldOffset,
      found: `${this.#blockCount} data blocks`,
      expected: `at most ${MAX_BLOCKS}`,
      message: `the image's files have more than ${MAX_BLOCKS} data blocks, which are not proven; split it or use larger blocks`,
    });
  }

  /** A block of a file; answers with its length on disk. A hole has none. */
  addBlock(start: number, word: number, contentBytes: number, fieldOffset: number): number {
    if (word === 0) return 0;
    this.#prove('data block', start, word, fieldOffset);
    const diskBytes = diskBytesOf(word);
    if ((word & STORED) !== 0 && diskBytes !== contentBytes) {
      throw refuse('stored data block size', fieldOffset, diskBytes, String(contentBytes));
    }
    this.#push(start, word, contentBytes, contentBytes);
    return diskBytes;
  }

  /** To be called once all are added: proves that different extents are disjoint. */
  proveDisjoint(): void {
    this.#order = Uint32Array.from({ length: this.#starts.length }, (_, index) => index);
    this.#order.sort((a, b) => this.#starts.at(a) - this.#starts.at(b));
    let previous = -1;
    for (const index of this.#order) {
      if (previous >= 0 && !this.#same(previous, index)) {
        const end = this.#starts.at(previous) + diskBytesOf(this.#words.at(previous));
        const start = this.#starts.at(index);
        if (start < end) throw refuse('data block', start, 'within another block', `at least ${end}, where that ends`);
      }
      previous = index;
    }
  }

  /**
   * After `proveDisjoint`: what is compressed, each once, in the order in which it lies on disk. The length of a stored
   * block is a matter of its size word alone, which has been proven.
   */
  compressed(): DataBlocks {
    const chosen = this.#order.filter((index, position) => {
      const previous = this.#order[position - 1];
      const repeated = previous !== undefined && this.#same(previous, index);
      return !repeated && (this.#words.at(index) & STORED) === 0;
    });
    return {
      starts: Float64Array.from(chosen, (index) => this.#starts.at(index)),
      diskBytes: Uint32Array.from(chosen, (index) => diskBytesOf(this.#words.at(index))),
      minBytes: Uint32Array.from(chosen, (index) => this.#minBytes.at(index)),
      maxBytes: Uint32Array.from(chosen, (index) => this.#maxBytes.at(index)),
    };
  }

  #prove(field: string, start: number, word: number, fieldOffset: number): void {
    const diskBytes = diskBytesOf(word);
    if (diskBytes === 0 || diskBytes > this.#blockSizeBytes) {
      throw refuse(`${field} size`, fieldOffset, diskBytes, `1 to ${this.#blockSizeBytes}`);
    }
    if (start < this.#start || start + diskBytes > this.#end) {
      const expected = `within ${this.#start} to ${this.#end}`;
      throw refuse(field, fieldOffset, `${start} to ${start + diskBytes}`, expected);
    }
  }

  #push(start: number, word: number, minBytes: number, maxBytes: number): void {
    this.#starts.push(start);
    this.#words.push(word);
    this.#minBytes.push(minBytes);
    this.#maxBytes.push(maxBytes);
  }

  /** Blocks of duplicate files. A fragment shares its place with nothing. */
  #same(a: number, b: number): boolean {
    return (
      a >= this.#fragmentCount &&
      b >= this.#fragmentCount &&
      this.#starts.at(a) === this.#starts.at(b) &&
      this.#words.at(a) === this.#words.at(b) &&
      this.#maxBytes.at(a) === this.#maxBytes.at(b)
    );
  }
}

function diskBytesOf(word: number): number {
  return (word & ~STORED) >>> 0;
}

function refuse(field: string, offsetBytes: number, found: string | number, expected: string): Refusal {
  return invalid({ code: 'squashfs-data-extent', field, offsetBytes, found: String(found), expected });
}
