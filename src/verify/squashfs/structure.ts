/**
 * Depth 3: every metadata block is decompressed, every inode and every directory entry read and held against the
 * others. Two passes: the inode table from end to end, then the directories in the order in which their listings lie.
 * Memory follows the number of inodes and blocks that are really there, within the bounds that `readLayout` and
 * `DataExtents` set.
 */

import type { ImageFile } from '../image-file.js';
import type { Pace } from '../pace.js';
import { invalid, type Refusal, unsupported } from '../refusal.js';
import { DataExtents } from './data-extents.js';
import type { Decompress } from './decompress.js';
import { DirectoryProof } from './directories.js';
import { type FileBody, type Inode, readInode } from './inode.js';
import { InodeMap } from './inode-map.js';
import type { Layout, TableExtent } from './layout.js';
import { MetadataBudget, type MetadataCursor, MetadataReader, type MetadataTools } from './metadata.js';
import { proveExports, proveFragments, proveIds, proveXattrs } from './tables.js';

/** Directory entries hold 32 bits of an inode's place in its table, inodes 32 bits of a listing's. */
const MAX_TABLE_BYTES = 2 ** 32;
/** Block sizes that are read between two looks at the clock. */
const PACE_BLOCKS = 1024;

/** Proves all metadata; answers with where the data lies. Throws a `Refusal`; errors: EIO, EINTR. */
export async function proveStructure(
  image: ImageFile,
  layout: Layout,
  decompress: Decompress,
  pace: Pace,
): Promise<DataExtents> {
  return await new StructureProof(image, layout, decompress, pace).run();
}

class StructureProof {
  readonly #layout: Layout;
  readonly #pace: Pace;
  readonly #tools: MetadataTools;
  readonly #inodeReader: MetadataReader;
  readonly #inodes: InodeMap;
  readonly #extents: DataExtents;
  readonly #directories: DirectoryProof;

  constructor(image: ImageFile, layout: Layout, decompress: Decompress, pace: Pace) {
    const { superblock, inodes, directories } = layout;
    for (const [name, { start, end }] of Object.entries({ inodes, directories })) {
      if (end - start > MAX_TABLE_BYTES) throw refuseAsTooLarge(name, start, end - start);
    }
    this.#layout = layout;
    this.#pace = pace;
    this.#tools = { image, decompress, budget: new MetadataBudget() };
    this.#inodeReader = this.#reader('inode table', inodes);
    this.#inodes = new InodeMap(superblock.inodeCount);
    this.#extents = new DataExtents(superblock.dataStart, superblock.inodeTableStart, superblock.blockSizeBytes);
    const listings = this.#reader('directory table', directories);
    this.#directories = new DirectoryProof(listings, this.#inodeReader, this.#inodes);
  }

  #reader(name: string, extent: TableExtent): MetadataReader {
    return new MetadataReader(this.#tools, name, extent);
  }

  async run(): Promise<DataExtents> {
    const { exports, fragments, ids, inodes, superblock, xattrs } = this.#layout;
    const pace = this.#pace;
    proveIds(this.#reader('id table', ids), ids);
    if (fragments !== undefined) {
      const reader = this.#reader('fragment table', fragments);
      await proveFragments(reader, fragments, superblock.baseOffset, this.#extents, pace);
    }
    if (xattrs !== undefined) {
      const sets = this.#reader('xattr id table', xattrs.sets);
      await proveXattrs(sets, xattrs.sets, this.#reader('xattr table', xattrs.pairs), pace);
    }
    await this.#proveInodes();
    const root = this.#proveRoot();
    if (exports !== undefined) await proveExports(this.#reader('export table', exports), exports, this.#inodes, pace);
    await this.#directories.run(pace);
    this.#inodes.proveTree(root, inodes.start);
    this.#extents.proveDisjoint();
    return this.#extents;
  }

  async #proveInodes(): Promise<void> {
    const { baseOffset, blockSizeBytes, inodeCount } = this.#layout.superblock;
    const tableStart = this.#layout.inodes.start;
    const cursor = this.#inodeReader.cursor(tableStart, 0);
    let inBlock = -1;
    while (!cursor.atEnd) {
      const { block, offset } = cursor;
      if (block !== inBlock && this.#pace.due) await this.#pace.turn();
      inBlock = block;
      const inode = readInode(cursor, blockSizeBytes);
      this.#inodes.add(inode, block - tableStart, offset, cursor);
      this.#proveIndexes(inode, cursor);
      if (inode.body.kind === 'file') await this.#proveFile(inode.body, cursor);
      if (inode.body.kind === 'directory') this.#directories.add(inode.number, inode.body, cursor);
    }
    if (this.#inodes.seen !== inodeCount) {
      throw invalid({
        code: 'squashfs-superblock',
        field: 'inodes',
        offsetBytes: baseOffset + 4,
        found: String(inodeCount),
        expected: `${this.#inodes.seen}, as many as the inode table holds`,
      });
    }
  }

  #proveIndexes(inode: Inode, cursor: MetadataCursor): void {
    const { idCount } = this.#layout.superblock;
    const { groupIndex, userIndex, xattrIndex } = inode;
    if (userIndex >= idCount) throw cursor.refuse('uid index', userIndex, `less than ${idCount}`);
    if (groupIndex >= idCount) throw cursor.refuse('gid index', groupIndex, `less than ${idCount}`);
    const setCount = this.#layout.xattrs?.sets.entryCount ?? 0;
    if (xattrIndex !== undefined && xattrIndex >= setCount) {
      throw cursor.refuse('xattr index', xattrIndex, `less than ${setCount}`);
    }
  }

  async #proveFile(file: FileBody, cursor: MetadataCursor): Promise<void> {
    const { baseOffset, blockSizeBytes } = this.#layout.superblock;
    const { blockCount, fragment, sizeBytes } = file;
    this.#extents.announce(blockCount, cursor.fieldOffset);
    let start = baseOffset + file.dataStart;
    for (let index = 0; index < blockCount; index += 1) {
      const contentBytes = Math.min(blockSizeBytes, sizeBytes - index * blockSizeBytes);
      const word = cursor.u32();
      start += this.#extents.addBlock(start, word, contentBytes, cursor.fieldOffset);
      if (index % PACE_BLOCKS === 0 && this.#pace.due) await this.#pace.turn();
    }
    if (fragment === undefined) return;
    if (fragment.index >= this.#extents.fragmentCount) {
      throw cursor.refuse('fragment index', fragment.index, `less than ${this.#extents.fragmentCount}`);
    }
    const tailBytes = sizeBytes - blockCount * blockSizeBytes;
    this.#extents.useFragment(fragment.index, fragment.offset, tailBytes, cursor.fieldOffset);
  }

  #proveRoot(): number {
    const { baseOffset, rootInode } = this.#layout.superblock;
    const number = this.#inodes.numberAt(rootInode.block, rootInode.offset);
    if (number !== 0 && this.#inodes.isDirectory(number)) return number;
    throw invalid({
      code: 'squashfs-superblock',
      field: 'root_inode',
      offsetBytes: baseOffset + 32,
      found: `block ${rootInode.block}, offset ${rootInode.offset}`,
      expected: 'where a directory inode stands',
    });
  }
}

function refuseAsTooLarge(name: string, offsetBytes: number, bytes: number): Refusal {
  return unsupported({
    code: 'squashfs-too-large',
    field: name,
    offsetBytes,
    found: `${bytes} bytes`,
    expected: `at most ${MAX_TABLE_BYTES}`,
    message: `the table of ${name} has ${bytes} bytes, more than the format can refer to; split the image`,
  });
}
