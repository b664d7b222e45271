/**
 * A small squashfs 4.0 writer (gzip or nothing), for tests: where `mksquashfs` is too slow (hundreds of images), too
 * honest (semantic damage wants the bytes laid bare: `compressMetadata: false`) or too sane (bombs).
 * Deterministic: the same tree gives the same bytes. Layout after linux/fs/squashfs/squashfs_fs.h.
 */

import { deflateSync } from 'node:zlib';

export interface FileNode {
  readonly kind: 'file';
  readonly content: Buffer;
  readonly mode?: number;
}
export interface SymlinkNode {
  readonly kind: 'symlink';
  readonly target: string;
}
export interface DirectoryNode {
  readonly kind: 'directory';
  readonly entries: Readonly<Record<string, TreeNode>>;
  readonly mode?: number;
}
export type TreeNode = FileNode | SymlinkNode | DirectoryNode;

export interface SquashfsOptions {
  /** Power of two from 4096 to 1048576; default 131072. */
  readonly blockSizeBytes?: number;
  /** Default true; false stores every metadata block, so that a test can edit fields in place. */
  readonly compressMetadata?: boolean;
  /** Default true; a block that does not shrink is stored in any case. */
  readonly compressData?: boolean;
  /** Default true: an export table is written. */
  readonly exportable?: boolean;
  /** Default 1700000000. */
  readonly modifiedSeconds?: number;
}

const SUPERBLOCK_BYTES = 96;
const METADATA_BYTES = 8192;
const STORED_METADATA = 0x8000;
const STORED_DATA = 1 << 24;
const ABSENT_TABLE = 0xffff_ffff_ffff_ffffn;
const NO_FRAGMENT = 0xffff_ffff;
const NO_XATTR = 0xffff_ffff;
const PADDING_BYTES = 4096;
const MAX_RUN_ENTRIES = 256;
const TYPE = { directory: 1, file: 2, symlink: 3 } as const;

/** The image, padded to a multiple of 4096 bytes as mksquashfs does. */
export function buildSquashfs(root: DirectoryNode, options: SquashfsOptions = {}): Buffer {
  return new Writer(options).write(root);
}

/** A table of metadata blocks under construction. */
class MetadataWriter {
  readonly #blocks: Buffer[] = [];
  readonly #compress: boolean;
  #pending = Buffer.alloc(0);
  #writtenBytes = 0;

  constructor(compress: boolean) {
    this.#compress = compress;
  }

  /** Start of the current block in the table, and the offset in it, at which the next byte will lie. */
  get position(): { readonly block: number; readonly offset: number } {
    return { block: this.#writtenBytes, offset: this.#pending.length };
  }

  append(bytes: Buffer): void {
    this.#pending = Buffer.concat([this.#pending, bytes]);
    while (this.#pending.length >= METADATA_BYTES) {
      this.#emit(this.#pending.subarray(0, METADATA_BYTES));
      this.#pending = Buffer.from(this.#pending.subarray(METADATA_BYTES));
    }
  }

  finish(): Buffer {
    if (this.#pending.length > 0) this.#emit(this.#pending);
    this.#pending = Buffer.alloc(0);
    return Buffer.concat(this.#blocks);
  }

  #emit(content: Buffer): void {
    const squeezed = this.#compress ? deflateSync(content) : content;
    const stored = squeezed.length >= content.length;
    const body = stored ? content : squeezed;
    this.#blocks.push(u16(body.length | (stored ? STORED_METADATA : 0)), Buffer.from(body));
    this.#writtenBytes += 2 + body.length;
  }
}

class Writer {
  readonly #blockSizeBytes: number;
  readonly #options: SquashfsOptions;
  readonly #modifiedSeconds: number;
  readonly #data: Buffer[] = [];
  readonly #fragmentEntries: Buffer[] = [];
  readonly #inodes: MetadataWriter;
  readonly #directories: MetadataWriter;
  readonly #numbers = new Map<TreeNode, number>();
  /** By inode number - 1: what the export table holds. */
  readonly #references: bigint[] = [];
  #dataEnd = SUPERBLOCK_BYTES;
  #fragment: Buffer[] = [];
  #fragmentBytes = 0;

  constructor(options: SquashfsOptions) {
    this.#options = options;
    this.#blockSizeBytes = options.blockSizeBytes ?? 131_072;
    this.#modifiedSeconds = options.modifiedSeconds ?? 1_700_000_000;
    this.#inodes = new MetadataWriter(options.compressMetadata ?? true);
    this.#directories = new MetadataWriter(options.compressMetadata ?? true);
  }

  write(root: DirectoryNode): Buffer {
    this.#number(root);
    const rootReference = this.#directory(root, this.#numbers.size + 1);
    this.#flushFragment();

    const parts = [...this.#data];
    let end = this.#dataEnd;
    const place = (part: Buffer): number => {
      const start = end;
      parts.push(part);
      end += part.length;
      return start;
    };
    /** Metadata blocks followed by the index of their starts; answers with the start of the index. */
    const placeIndexed = (content: Buffer): bigint => {
      const starts: Buffer[] = [];
      for (let at = 0; at < content.length; at += METADATA_BYTES) {
        const block = new MetadataWriter(this.#options.compressMetadata ?? true);
        block.append(content.subarray(at, at + METADATA_BYTES));
        starts.push(u64(BigInt(place(block.finish()))));
      }
      return BigInt(place(Buffer.concat(starts)));
    };
    const inodeTable = place(this.#inodes.finish());
    const directoryTable = place(this.#directories.finish());
    const fragmentCount = this.#fragmentEntries.length;
    const fragmentTable = fragmentCount > 0 ? placeIndexed(Buffer.concat(this.#fragmentEntries)) : ABSENT_TABLE;
    const exportable = this.#options.exportable ?? true;
    const exportTable = exportable ? placeIndexed(Buffer.concat(this.#references.map(u64))) : ABSENT_TABLE;
    const idTable = placeIndexed(u32(0));
    const superblock = Buffer.alloc(SUPERBLOCK_BYTES);
    superblock.write('hsqs', 0, 'latin1');
    superblock.writeUInt32LE(this.#numbers.size, 4);
    superblock.writeUInt32LE(this.#modifiedSeconds, 8);
    superblock.writeUInt32LE(this.#blockSizeBytes, 12);
    superblock.writeUInt32LE(fragmentCount, 16);
    superblock.writeUInt16LE(1, 20);
    superblock.writeUInt16LE(Math.log2(this.#blockSizeBytes), 22);
    superblock.writeUInt16LE(0x40 | (exportable ? 0x80 : 0) | 0x200, 24);
    superblock.writeUInt16LE(1, 26);
    superblock.writeUInt16LE(4, 28);
    superblock.writeBigUInt64LE(rootReference, 32);
    superblock.writeBigUInt64LE(BigInt(end), 40);
    superblock.writeBigUInt64LE(idTable, 48);
    superblock.writeBigUInt64LE(ABSENT_TABLE, 56);
    superblock.writeBigUInt64LE(BigInt(inodeTable), 64);
    superblock.writeBigUInt64LE(BigInt(directoryTable), 72);
    superblock.writeBigUInt64LE(fragmentTable, 80);
    superblock.writeBigUInt64LE(exportTable, 88);
    const padding = Buffer.alloc((PADDING_BYTES - (end % PADDING_BYTES)) % PADDING_BYTES);
    return Buffer.concat([superblock, ...parts, padding]);
  }

  #number(node: TreeNode): void {
    this.#numbers.set(node, this.#numbers.size + 1);
    if (node.kind === 'directory') for (const [, child] of sortedEntries(node)) this.#number(child);
  }

  #numberOf(node: TreeNode): number {
    const number = this.#numbers.get(node);
    if (number === undefined) throw new Error('a node that was not numbered');
    return number;
  }

  /** Writes the children, the listing and the inode, in this order, and answers with the inode's reference. */
  #directory(node: DirectoryNode, parentNumber: number): bigint {
    const number = this.#numberOf(node);
    const children = sortedEntries(node).map(([name, child]) => ({
      name: Buffer.from(name, 'utf8'),
      type: TYPE[child.kind],
      number: this.#numberOf(child),
      reference: child.kind === 'directory' ? this.#directory(child, number) : this.#leaf(child),
    }));
    const { block, offset } = this.#directories.position;
    let listingBytes = 0;
    for (let at = 0; at < children.length; ) {
      const first = children[at];
      if (first === undefined) break;
      const inodeBlock = first.reference >> 16n;
      let until = at + 1;
      for (; until < Math.min(children.length, at + MAX_RUN_ENTRIES); until += 1) {
        const next = children[until];
        if (next === undefined || next.reference >> 16n !== inodeBlock) break;
        if (Math.abs(next.number - first.number) > 0x7fff) break;
      }
      const run = children.slice(at, until).map((child) => {
        const entry = Buffer.alloc(8);
        entry.writeUInt16LE(Number(child.reference & 0xffffn), 0);
        entry.writeInt16LE(child.number - first.number, 2);
        entry.writeUInt16LE(child.type, 4);
        entry.writeUInt16LE(child.name.length - 1, 6);
        return Buffer.concat([entry, child.name]);
      });
      const listing = Buffer.concat([u32(until - at - 1), u32(Number(inodeBlock)), u32(first.number), ...run]);
      this.#directories.append(listing);
      listingBytes += listing.length;
      at = until;
    }
    const subdirectories = Object.values(node.entries).filter((child) => child.kind === 'directory').length;
    const fileSize = listingBytes + 3;
    const links = 2 + subdirectories;
    const mode = node.mode ?? 0o755;
    if (fileSize <= 0xffff) {
      const body = [u32(block), u32(links), u16(fileSize), u16(offset), u32(parentNumber)];
      return this.#inode(1, mode, number, Buffer.concat(body));
    }
    const body = [u32(links), u32(fileSize), u32(block), u32(parentNumber), u16(0), u16(offset), u32(NO_XATTR)];
    return this.#inode(8, mode, number, Buffer.concat(body));
  }

  #leaf(node: FileNode | SymlinkNode): bigint {
    const number = this.#numberOf(node);
    if (node.kind === 'symlink') {
      const target = Buffer.from(node.target, 'utf8');
      return this.#inode(3, 0o777, number, Buffer.concat([u32(1), u32(target.length), target]));
    }
    const start = this.#dataEnd;
    const words: Buffer[] = [];
    const wholeBytes = node.content.length - (node.content.length % this.#blockSizeBytes);
    for (let at = 0; at < wholeBytes; at += this.#blockSizeBytes) {
      words.push(u32(this.#dataBlock(node.content.subarray(at, at + this.#blockSizeBytes))));
    }
    const tail = this.#tail(node.content.subarray(wholeBytes));
    const body = [u32(words.length > 0 ? start : 0), u32(tail.fragment), u32(tail.offset), u32(node.content.length)];
    return this.#inode(2, node.mode ?? 0o755, number, Buffer.concat([...body, ...words]));
  }

  #inode(type: number, mode: number, number: number, body: Buffer): bigint {
    const { block, offset } = this.#inodes.position;
    const header = [u16(type), u16(mode), u16(0), u16(0), u32(this.#modifiedSeconds), u32(number)];
    this.#inodes.append(Buffer.concat([...header, body]));
    const reference = (BigInt(block) << 16n) | BigInt(offset);
    this.#references[number - 1] = reference;
    return reference;
  }

  /** Writes a block of data and answers with its size word. */
  #dataBlock(content: Buffer): number {
    const squeezed = (this.#options.compressData ?? true) ? deflateSync(content) : content;
    const stored = squeezed.length >= content.length;
    const body = stored ? content : squeezed;
    this.#data.push(body);
    this.#dataEnd += body.length;
    return body.length | (stored ? STORED_DATA : 0);
  }

  #tail(content: Buffer): { readonly fragment: number; readonly offset: number } {
    if (content.length === 0) return { fragment: NO_FRAGMENT, offset: 0 };
    if (this.#fragmentBytes + content.length > this.#blockSizeBytes) this.#flushFragment();
    const offset = this.#fragmentBytes;
    this.#fragment.push(content);
    this.#fragmentBytes += content.length;
    return { fragment: this.#fragmentEntries.length, offset };
  }

  #flushFragment(): void {
    if (this.#fragmentBytes === 0) return;
    const start = this.#dataEnd;
    const word = this.#dataBlock(Buffer.concat(this.#fragment));
    this.#fragmentEntries.push(Buffer.concat([u64(BigInt(start)), u32(word), u32(0)]));
    this.#fragment = [];
    this.#fragmentBytes = 0;
  }
}

function sortedEntries(node: DirectoryNode): [string, TreeNode][] {
  return Object.entries(node.entries).sort(([a], [b]) =>
    Buffer.compare(Buffer.from(a, 'utf8'), Buffer.from(b, 'utf8')),
  );
}

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(value);
  return bytes;
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value >>> 0);
  return bytes;
}

function u64(value: bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}
