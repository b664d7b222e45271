/**
 * What is remembered of every inode, by its number (1 to `count`): where it stands, its type, how often it is named,
 * and of directories their parent. About 16 bytes each.
 */

import { invalid, type Refusal } from '../refusal.js';
import type { Inode } from './inode.js';
import { TYPE_DIRECTORY } from './inode.js';
import type { ListingEntry } from './listing.js';
import type { MetadataCursor } from './metadata.js';

const UNKNOWN = 0;
const ON_PATH = 1;
const ROOTED = 2;

export class InodeMap {
  readonly count: number;
  #seen = 0;
  /** 0 where no inode of that number was seen. */
  readonly #types: Uint8Array;
  readonly #blocks: Uint32Array;
  readonly #offsets: Uint16Array;
  readonly #parents: Uint32Array;
  readonly #named: Uint8Array;

  constructor(count: number) {
    this.count = count;
    this.#types = new Uint8Array(count + 1);
    this.#blocks = new Uint32Array(count + 1);
    this.#offsets = new Uint16Array(count + 1);
    this.#parents = new Uint32Array(count + 1);
    this.#named = new Uint8Array(count + 1);
  }

  get seen(): number {
    return this.#seen;
  }

  /** `block` is relative to the inode table. Throws a `Refusal` if the number is out of range or taken. */
  add(inode: Inode, block: number, offset: number, cursor: MetadataCursor): void {
    const { number, type, body } = inode;
    if (number < 1 || number > this.count) throw cursor.refuse('inode_number', number, `1 to ${this.count}`);
    if (this.#types[number] !== 0) throw cursor.refuse('inode_number', number, 'a number that no other inode has');
    this.#types[number] = type;
    this.#blocks[number] = block;
    this.#offsets[number] = offset;
    if (body.kind === 'directory') this.#parents[number] = body.parentNumber;
    this.#seen += 1;
  }

  stands(number: number, block: number, offset: number): boolean {
    return this.#types[number] !== 0 && this.#blocks[number] === block && this.#offsets[number] === offset;
  }

  /** Number of the inode that stands there, 0 if none does. */
  numberAt(block: number, offset: number): number {
    for (let number = 1; number <= this.count; number += 1) if (this.stands(number, block, offset)) return number;
    return 0;
  }

  isDirectory(number: number): boolean {
    return this.#types[number] === TYPE_DIRECTORY;
  }

  /** An entry in the directory `parent`. Throws a `Refusal` if it does not name the inode that it says. */
  name(entry: ListingEntry, parent: number, cursor: MetadataCursor): void {
    const { inodeBlock, inodeOffset, number, type } = entry;
    if (number < 1 || number > this.count) throw cursor.refuse('entry inode number', number, `1 to ${this.count}`);
    if (!this.stands(number, inodeBlock, inodeOffset)) {
      const found = `block ${inodeBlock}, offset ${inodeOffset}`;
      const expected = `block ${this.#blocks[number]}, offset ${this.#offsets[number]}, where inode ${number} stands`;
      throw cursor.refuse('entry inode reference', found, expected);
    }
    if (type !== this.#types[number]) {
      throw cursor.refuse('entry type', type, `${this.#types[number]}, the type of inode ${number}`);
    }
    if (type === TYPE_DIRECTORY) {
      if (this.#named[number] !== 0) throw cursor.refuse('entry inode number', number, 'a directory not yet named');
      if (this.#parents[number] !== parent) {
        throw cursor.refuse('parent_inode', `${this.#parents[number]} in directory ${number}`, `${parent}`);
      }
    }
    this.#named[number] = 1;
  }

  /** Proves that every inode can be reached from the root, which nothing names. Throws a `Refusal`. */
  proveTree(root: number, tableStart: number): void {
    if (this.#named[root] !== 0) throw refuseTree(tableStart, `the root, inode ${root}, in a directory`, 'nowhere');
    const states = new Uint8Array(this.count + 1);
    states[root] = ROOTED;
    const path: number[] = [];
    for (let number = 1; number <= this.count; number += 1) {
      if (number !== root && this.#named[number] === 0) {
        throw refuseTree(tableStart, `inode ${number} in no directory`, 'every inode in one');
      }
      if (!this.isDirectory(number)) continue;
      // Named directories have exactly one parent, so following it ends at the root or runs in a circle.
      let current = number;
      while (states[current] === UNKNOWN) {
        states[current] = ON_PATH;
        path.push(current);
        current = this.#parents[current] ?? 0;
      }
      if (states[current] === ON_PATH) {
        throw refuseTree(tableStart, `directory ${current} within itself`, 'directories below the root');
      }
      for (const directory of path) states[directory] = ROOTED;
      path.length = 0;
    }
  }
}

function refuseTree(offsetBytes: number, found: string, expected: string): Refusal {
  return invalid({ code: 'squashfs-tree', field: 'directory tree', offsetBytes, found, expected });
}
