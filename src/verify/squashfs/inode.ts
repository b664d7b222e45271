/**
 * One inode of the inode table, as it stands there. What follows the fixed part of a file (block sizes) or a large
 * directory (index) is left to the caller: the cursor stands before it.
 * Source: struct squashfs_*_inode in linux/fs/squashfs/squashfs_fs.h.
 */

import type { MetadataCursor } from './metadata.js';

/** Types as directory entries give them; those of extended inodes are higher by `EXTENDED`. */
export const TYPE_DIRECTORY = 1;
const TYPE_FILE = 2;
const TYPE_SYMLINK = 3;
const TYPE_BLOCK_DEVICE = 4;
const TYPE_CHARACTER_DEVICE = 5;
const TYPE_FIFO = 6;
const TYPE_SOCKET = 7;
const EXTENDED = 7;
const LAST_TYPE = 14;

const NO_FRAGMENT = 0xffff_ffff;
const NO_XATTR = 0xffff_ffff;
/** Of a symbolic link's target: what Linux resolves. */
const MAX_TARGET_BYTES = 4096;
/** The type bits of st_mode by inode type, for writers that keep them in the inode's mode. */
const MODE_TYPES: readonly number[] = [0, 0o040000, 0o100000, 0o120000, 0o060000, 0o020000, 0o010000, 0o140000];
const MODE_TYPE_MASK = 0o170000;

export interface DirectoryBody {
  readonly kind: 'directory';
  /** Start of the metadata block relative to the directory table, and offset in it. */
  readonly listingBlock: number;
  readonly listingOffset: number;
  readonly listingBytes: number;
  readonly parentNumber: number;
  /** Entries of the index behind the fixed part. */
  readonly indexCount: number;
}

export interface FileBody {
  readonly kind: 'file';
  /** Of the first data block, relative to the image. */
  readonly dataStart: number;
  readonly sizeBytes: number;
  readonly fragment: { readonly index: number; readonly offset: number } | undefined;
  /** Number of u32 block sizes behind the fixed part. */
  readonly blockCount: number;
}

export interface SymlinkBody {
  readonly kind: 'symlink';
  readonly target: Buffer;
}

export interface SpecialBody {
  readonly kind: 'block-device' | 'character-device' | 'fifo' | 'socket';
}

export interface Inode {
  /** 1 to 7, extended or not. */
  readonly type: number;
  /** Permission bits. */
  readonly mode: number;
  readonly userIndex: number;
  readonly groupIndex: number;
  readonly modifiedSeconds: number;
  readonly number: number;
  /** Index of its set of extended attributes, if it has one. */
  readonly xattrIndex: number | undefined;
  readonly body: DirectoryBody | FileBody | SymlinkBody | SpecialBody;
}

/** Reads the inode at the cursor. Throws a `Refusal` for a type or a length that can't be. */
export function readInode(cursor: MetadataCursor, blockSizeBytes: number): Inode {
  const rawType = cursor.u16();
  if (rawType < 1 || rawType > LAST_TYPE) throw cursor.refuse('inode_type', rawType, `1 to ${LAST_TYPE}`);
  const extended = rawType > EXTENDED;
  const type = extended ? rawType - EXTENDED : rawType;
  const mode = readMode(cursor, type);
  const userIndex = cursor.u16();
  const groupIndex = cursor.u16();
  const modifiedSeconds = cursor.u32();
  const number = cursor.u32();
  const { body, xattr } = readBody(cursor, type, extended, blockSizeBytes);
  const xattrIndex = xattr === NO_XATTR ? undefined : xattr;
  return { type, mode, userIndex, groupIndex, modifiedSeconds, number, xattrIndex, body };
}

function readMode(cursor: MetadataCursor, type: number): number {
  const mode = cursor.u16();
  const typeBits = mode & MODE_TYPE_MASK;
  const expected = MODE_TYPES[type] ?? 0;
  if (typeBits !== 0 && typeBits !== expected) {
    throw cursor.refuse('mode', `0${mode.toString(8)}`, `no type bits, or 0${expected.toString(8)}`);
  }
  return mode & ~MODE_TYPE_MASK;
}

interface BodyAndXattr {
  readonly body: Inode['body'];
  readonly xattr: number;
}

function readBody(cursor: MetadataCursor, type: number, extended: boolean, blockSizeBytes: number): BodyAndXattr {
  switch (type) {
    case TYPE_DIRECTORY:
      return extended ? readExtendedDirectory(cursor) : readDirectory(cursor);
    case TYPE_FILE:
      return extended ? readExtendedFile(cursor, blockSizeBytes) : readFile(cursor, blockSizeBytes);
    case TYPE_SYMLINK: {
      cursor.skip(4); // link count
      const body: SymlinkBody = { kind: 'symlink', target: readTarget(cursor) };
      return { body, xattr: extended ? cursor.u32() : NO_XATTR };
    }
    case TYPE_BLOCK_DEVICE:
    case TYPE_CHARACTER_DEVICE: {
      cursor.skip(8); // link count, device number
      const kind = type === TYPE_BLOCK_DEVICE ? 'block-device' : 'character-device';
      return { body: { kind }, xattr: extended ? cursor.u32() : NO_XATTR };
    }
    case TYPE_FIFO:
    case TYPE_SOCKET: {
      cursor.skip(4); // link count
      return { body: { kind: type === TYPE_FIFO ? 'fifo' : 'socket' }, xattr: extended ? cursor.u32() : NO_XATTR };
    }
    default:
      throw cursor.refuse('inode_type', type, `1 to ${LAST_TYPE}`);
  }
}

function readDirectory(cursor: MetadataCursor): BodyAndXattr {
  const listingBlock = cursor.u32();
  cursor.skip(4); // link count
  const fileSize = cursor.u16();
  const listingOffset = cursor.u16();
  const parentNumber = cursor.u32();
  const listingBytes = listingBytesOf(fileSize);
  const body = { kind: 'directory', listingBlock, listingOffset, listingBytes, parentNumber, indexCount: 0 } as const;
  return { body, xattr: NO_XATTR };
}

function readExtendedDirectory(cursor: MetadataCursor): BodyAndXattr {
  cursor.skip(4); // link count
  const listingBytes = listingBytesOf(cursor.u32());
  const listingBlock = cursor.u32();
  const parentNumber = cursor.u32();
  const indexCount = cursor.u16();
  const listingOffset = cursor.u16();
  const xattr = cursor.u32();
  return { body: { kind: 'directory', listingBlock, listingOffset, listingBytes, parentNumber, indexCount }, xattr };
}

/** A directory's size counts three bytes for "." and "..", which are not in its listing. */
function listingBytesOf(fileSize: number): number {
  return Math.max(0, fileSize - 3);
}

function readFile(cursor: MetadataCursor, blockSizeBytes: number): BodyAndXattr {
  const dataStart = cursor.u32();
  const fragment = readFragment(cursor);
  const sizeBytes = cursor.u32();
  const blockCount = blockCountOf(sizeBytes, fragment !== undefined, blockSizeBytes);
  return { body: { kind: 'file', dataStart, sizeBytes, fragment, blockCount }, xattr: NO_XATTR };
}

function readExtendedFile(cursor: MetadataCursor, blockSizeBytes: number): BodyAndXattr {
  const dataStart = safeNumber(cursor, 'start_block', cursor.u64());
  const sizeBytes = safeNumber(cursor, 'file_size', cursor.u64());
  cursor.skip(12); // bytes saved by holes, link count
  const fragment = readFragment(cursor);
  const xattr = cursor.u32();
  const blockCount = blockCountOf(sizeBytes, fragment !== undefined, blockSizeBytes);
  return { body: { kind: 'file', dataStart, sizeBytes, fragment, blockCount }, xattr };
}

function readFragment(cursor: MetadataCursor): FileBody['fragment'] {
  const index = cursor.u32();
  const offset = cursor.u32();
  return index === NO_FRAGMENT ? undefined : { index, offset };
}

/** A file with a fragment has its last, partial block there. */
function blockCountOf(sizeBytes: number, hasFragment: boolean, blockSizeBytes: number): number {
  const blocks = sizeBytes / blockSizeBytes;
  return hasFragment ? Math.floor(blocks) : Math.ceil(blocks);
}

function readTarget(cursor: MetadataCursor): Buffer {
  const size = cursor.u32();
  if (size > MAX_TARGET_BYTES) throw cursor.refuse('symlink_size', size, `at most ${MAX_TARGET_BYTES}`);
  return cursor.bytes(size);
}

function safeNumber(cursor: MetadataCursor, field: string, value: bigint): number {
  if (value > Number.MAX_SAFE_INTEGER) throw cursor.refuse(field, String(value), 'less than 2^53');
  return Number(value);
}
