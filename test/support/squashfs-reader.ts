/**
 * Reads a SIF's root file system with the readers of the proof and nothing else, so that tests can hold what they make
 * of an image against the kernel and unsquashfs. It trusts the image: only for those that were found valid.
 */

import { ImageFile } from '../../src/verify/image-file.js';
import { proveSif } from '../../src/verify/sif.js';
import { type Decompress, openDecompressor } from '../../src/verify/squashfs/decompress.js';
import { type FileBody, type Inode, readInode } from '../../src/verify/squashfs/inode.js';
import { type Layout, readLayout } from '../../src/verify/squashfs/layout.js';
import { readListing } from '../../src/verify/squashfs/listing.js';
import { MetadataBudget, type MetadataCursor, MetadataReader } from '../../src/verify/squashfs/metadata.js';
import { proveSuperblock } from '../../src/verify/squashfs/superblock.js';
import { entriesOf } from '../../src/verify/squashfs/tables.js';
import { sha256Of } from './sif-writer.js';

/** One entry of a tree, in words that can be compared. */
export interface TreeEntry {
  readonly kind: string;
  readonly mode: string;
  readonly uid: number;
  readonly gid: number;
  readonly modifiedSeconds: number;
  /** Of a file: its size and digest; of a link: its target. */
  readonly content: string;
}

/** Path below the root (without a leading slash, in latin1, so that no byte is lost) to what stands there. */
export type Tree = ReadonlyMap<string, TreeEntry>;

const STORED = 1 << 24;

/** The whole tree; file contents are digested only with `contents`. */
export async function readTree(path: string, options: { readonly contents: boolean }): Promise<Tree> {
  const image = ImageFile.open(path);
  try {
    const layout = readLayout(image, proveSuperblock(image, proveSif(image).partition));
    const decompress = await openDecompressor(layout.superblock.compressor);
    return new TreeReader(image, layout, decompress, options.contents).read();
  } finally {
    image.close();
  }
}

class TreeReader {
  readonly #image: ImageFile;
  readonly #layout: Layout;
  readonly #decompress: Decompress;
  readonly #contents: boolean;
  readonly #inodes: MetadataReader;
  readonly #directories: MetadataReader;
  readonly #ids: number[] = [];
  readonly #fragments: { start: number; word: number }[] = [];
  readonly #fragmentContents = new Map<number, Buffer>();
  readonly #tree = new Map<string, TreeEntry>();

  constructor(image: ImageFile, layout: Layout, decompress: Decompress, contents: boolean) {
    const tools = { image, decompress, budget: new MetadataBudget() };
    this.#image = image;
    this.#layout = layout;
    this.#decompress = decompress;
    this.#contents = contents;
    this.#inodes = new MetadataReader(tools, 'inode table', layout.inodes);
    this.#directories = new MetadataReader(tools, 'directory table', layout.directories);
    const ids = new MetadataReader(tools, 'id table', layout.ids);
    for (const { at, block } of entriesOf(ids, layout.ids)) this.#ids.push(block.content.readUInt32LE(at));
    const { fragments, superblock } = layout;
    if (fragments === undefined) return;
    for (const { at, block } of entriesOf(new MetadataReader(tools, 'fragment table', fragments), fragments)) {
      const start = superblock.baseOffset + Number(block.content.readBigUInt64LE(at));
      this.#fragments.push({ start, word: block.content.readUInt32LE(at + 8) });
    }
  }

  read(): Tree {
    const { rootInode } = this.#layout.superblock;
    this.#visit('', rootInode.block, rootInode.offset);
    return this.#tree;
  }

  #visit(path: string, block: number, offset: number): void {
    const cursor = this.#inodes.cursor(this.#layout.inodes.start + block, offset);
    const inode = readInode(cursor, this.#layout.superblock.blockSizeBytes);
    this.#tree.set(path, {
      kind: inode.body.kind,
      mode: inode.mode.toString(8),
      uid: this.#ids[inode.userIndex] ?? -1,
      gid: this.#ids[inode.groupIndex] ?? -1,
      modifiedSeconds: inode.modifiedSeconds,
      content: this.#contentOf(inode, cursor),
    });
    if (inode.body.kind !== 'directory' || inode.body.listingBytes === 0) return;
    const { listingBlock, listingBytes, listingOffset } = inode.body;
    const listing = this.#directories.cursor(this.#layout.directories.start + listingBlock, listingOffset);
    for (const entry of readListing(listing, listingBytes)) {
      const name = entry.name.toString('latin1');
      this.#visit(path === '' ? name : `${path}/${name}`, entry.inodeBlock, entry.inodeOffset);
    }
  }

  #contentOf(inode: Inode, cursor: MetadataCursor): string {
    const { body } = inode;
    if (body.kind === 'symlink') return body.target.toString('latin1');
    if (body.kind !== 'file') return '';
    const digest = this.#contents ? ` ${sha256Of(this.#fileContent(body, cursor))}` : '';
    return `${body.sizeBytes}${digest}`;
  }

  #fileContent(file: FileBody, cursor: MetadataCursor): Buffer {
    const { baseOffset, blockSizeBytes } = this.#layout.superblock;
    const parts: Buffer[] = [];
    let start = baseOffset + file.dataStart;
    for (let index = 0; index < file.blockCount; index += 1) {
      const word = cursor.u32();
      const length = Math.min(blockSizeBytes, file.sizeBytes - index * blockSizeBytes);
      parts.push(word === 0 ? Buffer.alloc(length) : this.#block(start, word));
      start += word & ~STORED;
    }
    const fragment = file.fragment && this.#fragments[file.fragment.index];
    if (file.fragment !== undefined && fragment !== undefined) {
      const { offset } = file.fragment;
      const tail = file.sizeBytes - file.blockCount * blockSizeBytes;
      parts.push(this.#fragment(fragment.start, fragment.word).subarray(offset, offset + tail));
    }
    return Buffer.concat(parts);
  }

  #fragment(start: number, word: number): Buffer {
    const cached = this.#fragmentContents.get(start);
    if (cached !== undefined) return cached;
    const content = this.#block(start, word);
    this.#fragmentContents.set(start, content);
    return content;
  }

  #block(start: number, word: number): Buffer {
    const body = this.#image.read(start, word & ~STORED);
    return (word & STORED) === 0 ? this.#decompress(body, this.#layout.superblock.blockSizeBytes) : body;
  }
}
