/** Builds the replies that go back to the kernel: a `fuse_out_header`, then the body, in one buffer. Pure. */

import type { Attributes, FileSystemStatistics, Timeouts } from '../../filesystem/contract.js';
import type { Struct } from './layout.js';
import { MAX_NAME_BYTES } from './requests.js';
import { AttrOut, EntryOut, GetxattrOut, OutHeader, StatfsOut } from './structs.js';

const S_IFDIR = 0o040000;
const S_IFREG = 0o100000;
const NS_PER_MS = 1_000_000;
const STAT_BLOCK_BYTES = 512n;
/** What stat(2) names as the best size of a read; the kernel's page size, since larger reads come from readahead. */
const PREFERRED_READ_BYTES = 4096;

/** The reply to a failed request; `errno` is positive. */
export function errorReply(unique: bigint, errno: number): Buffer {
  const reply = Buffer.alloc(OutHeader.size);
  OutHeader.write(reply, 0, { length: reply.length, error: -errno, unique });
  return reply;
}

/** The reply to a request that succeeded and has nothing to say. */
export function emptyReply(unique: bigint): Buffer {
  return errorReply(unique, 0);
}

export function structReply<Values>(unique: bigint, layout: Struct<Values>, values: Partial<Values>): Buffer {
  const reply = Buffer.allocUnsafe(OutHeader.size + layout.size);
  OutHeader.write(reply, 0, { length: reply.length, unique });
  layout.write(reply, OutHeader.size, values);
  return reply;
}

export function bytesReply(unique: bigint, bytes: Uint8Array): Buffer {
  const reply = Buffer.allocUnsafe(OutHeader.size + bytes.length);
  OutHeader.write(reply, 0, { length: reply.length, unique });
  reply.set(bytes, OutHeader.size);
  return reply;
}

/**
 * The reply to GETXATTR and LISTXATTR: a buffer of size 0 asks how long the value is, too small a one gets `undefined`
 * (the caller answers ERANGE).
 */
export function extendedAttributeReply(unique: bigint, value: Uint8Array, sizeBytes: number): Buffer | undefined {
  if (sizeBytes === 0) return structReply(unique, GetxattrOut, { size: value.length });
  return value.length > sizeBytes ? undefined : bytesReply(unique, value);
}

export function entryReply(unique: bigint, attributes: Attributes, timeouts: Timeouts): Buffer {
  return structReply(unique, EntryOut, entryValues(attributes, timeouts));
}

export function attributesReply(unique: bigint, attributes: Attributes, timeouts: Timeouts): Buffer {
  const valid = kernelTime(attributeTimeoutMs(attributes, timeouts));
  return structReply(unique, AttrOut, {
    attrValidSeconds: valid.seconds,
    attrValidNs: valid.nanoseconds,
    attr: attrValues(attributes),
  });
}

export function statisticsReply(unique: bigint, statistics: FileSystemStatistics): Buffer {
  return structReply(unique, StatfsOut, {
    blocks: BigInt(statistics.totalBlocks),
    freeBlocks: BigInt(statistics.freeBlocks),
    availableBlocks: BigInt(statistics.freeBlocks),
    files: BigInt(statistics.files),
    freeFiles: 0n,
    blockSize: statistics.blockSizeBytes,
    fragmentSize: statistics.blockSizeBytes,
    nameLength: MAX_NAME_BYTES,
  });
}

type ValuesIn<Layout extends Struct<unknown>> = ReturnType<Layout['read']>;

/** The values of a `fuse_entry_out`. The generation stays 0: an inode number never stands for another file. */
export function entryValues(attributes: Attributes, timeouts: Timeouts): ValuesIn<typeof EntryOut> {
  const nameValid = kernelTime(timeouts.nameMs);
  const valid = kernelTime(attributeTimeoutMs(attributes, timeouts));
  return {
    nodeId: attributes.inode,
    generation: 0n,
    entryValidSeconds: nameValid.seconds,
    attrValidSeconds: valid.seconds,
    entryValidNs: nameValid.nanoseconds,
    attrValidNs: valid.nanoseconds,
    attr: attrValues(attributes),
  };
}

function attributeTimeoutMs({ kind }: Attributes, { nameMs, fileMs }: Timeouts): number {
  return kind === 'file' ? fileMs : nameMs;
}

function attrValues(attributes: Attributes): ValuesIn<typeof EntryOut>['attr'] {
  const size = BigInt(attributes.sizeBytes);
  const seconds = BigInt(attributes.modifiedSeconds);
  return {
    inode: attributes.inode,
    size,
    blocks: (size + STAT_BLOCK_BYTES - 1n) / STAT_BLOCK_BYTES,
    accessSeconds: seconds,
    modifySeconds: seconds,
    changeSeconds: seconds,
    accessNs: 0,
    modifyNs: 0,
    changeNs: 0,
    mode: fileType(attributes) | attributes.mode,
    linkCount: attributes.linkCount,
    uid: attributes.uid,
    gid: attributes.gid,
    device: 0,
    blockSize: PREFERRED_READ_BYTES,
    flags: 0,
  };
}

/** The S_IFMT bits of a mode. */
export function fileType(attributes: Attributes): number {
  return attributes.kind === 'directory' ? S_IFDIR : S_IFREG;
}

function kernelTime(durationMs: number): { seconds: bigint; nanoseconds: number } {
  const wholeMs = Math.max(0, Math.floor(durationMs));
  return { seconds: BigInt(Math.floor(wholeMs / 1000)), nanoseconds: (wholeMs % 1000) * NS_PER_MS };
}
