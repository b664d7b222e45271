/**
 * The footer of a Parquet file, with the few fields that a rewritten column needs. Source of the numbers:
 * apache/parquet-format, src/main/thrift/parquet.thrift.
 */

import type { FileHandle } from 'node:fs/promises';
import { TmaxError } from '../errors.js';
import { decodeStruct, type ThriftList, type ThriftStruct } from './thrift.js';

export const FileMetaData = { SCHEMA: 2, ROW_GROUPS: 4, ENCRYPTION_ALGORITHM: 8 } as const;
export const SchemaElement = { TYPE: 1, REPETITION: 3, NAME: 4, CHILDREN: 5 } as const;
export const RowGroup = {
  COLUMNS: 1,
  TOTAL_BYTE_SIZE: 2,
  ROWS: 3,
  SORTING_COLUMNS: 4,
  TOTAL_COMPRESSED_SIZE: 6,
} as const;
export const SortingColumn = { COLUMN: 1 } as const;
export const ColumnChunk = {
  FILE_PATH: 1,
  FILE_OFFSET: 2,
  META_DATA: 3,
  OFFSET_INDEX_OFFSET: 4,
  OFFSET_INDEX_LENGTH: 5,
  COLUMN_INDEX_OFFSET: 6,
  COLUMN_INDEX_LENGTH: 7,
  CRYPTO_METADATA: 8,
} as const;
export const ColumnMetaData = {
  TYPE: 1,
  ENCODINGS: 2,
  PATH: 3,
  CODEC: 4,
  VALUES: 5,
  UNCOMPRESSED_SIZE: 6,
  COMPRESSED_SIZE: 7,
  DATA_PAGE_OFFSET: 9,
  DICTIONARY_PAGE_OFFSET: 11,
} as const;

export const Repetition = { REQUIRED: 0n, OPTIONAL: 1n, REPEATED: 2n } as const;
export const BYTE_ARRAY = 6n;
export const UNCOMPRESSED = 0n;

export const MAGIC = Buffer.from('PAR1');
const ENCRYPTED_MAGIC = 'PARE';
/** Length of the footer (little endian) and the magic. */
export const TAIL_BYTES = 8;
const MAX_FOOTER_BYTES = 256 * 1024 * 1024;

export interface Footer {
  readonly metadata: ThriftStruct;
  /** Where the footer begins, and so where the data ends. */
  readonly offset: number;
}

/** Errors: EBADMSG no Parquet file; ENOTSUP an encrypted one. */
export async function readFooter(file: FileHandle): Promise<Footer> {
  const { size } = await file.stat();
  const tail = await readAt(file, Math.max(0, size - TAIL_BYTES), Math.min(size, TAIL_BYTES));
  const magic = tail.subarray(4).toString('latin1');
  if (magic === ENCRYPTED_MAGIC) throw unsupported('it is encrypted');
  const length = tail.length === TAIL_BYTES ? tail.readUInt32LE(0) : 0;
  if (magic !== MAGIC.toString() || length > size - TAIL_BYTES - MAGIC.length || length > MAX_FOOTER_BYTES) {
    throw new TmaxError('EBADMSG', 'the Parquet file has no footer: was it cut off?', { source: 'dataset' });
  }
  const offset = size - TAIL_BYTES - length;
  return { metadata: decodeStruct(await readAt(file, offset, length)), offset };
}

export async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await file.read(bytes, filled, length - filled, offset + filled);
    if (bytesRead === 0) throw new TmaxError('EBADMSG', 'the file ends too early', { source: 'dataset' });
    filled += bytesRead;
  }
  return bytes;
}

/** Errors of these: EBADMSG a footer without what it must have. */
export function integerAt(struct: ThriftStruct, id: number): bigint | undefined {
  const content = struct.get(id)?.content;
  return typeof content === 'bigint' ? content : undefined;
}

export function requiredInteger(struct: ThriftStruct, id: number): bigint {
  return integerAt(struct, id) ?? missing(id);
}

export function textOf(struct: ThriftStruct, id: number): string {
  const content = struct.get(id)?.content;
  return Buffer.isBuffer(content) ? content.toString('utf8') : '';
}

export function structAt(struct: ThriftStruct, id: number): ThriftStruct {
  const content = struct.get(id)?.content;
  return content instanceof Map ? content : missing(id);
}

export function structsAt(struct: ThriftStruct, id: number): ThriftStruct[] {
  return listAt(struct, id).items.filter((item) => item instanceof Map);
}

export function listAt(struct: ThriftStruct, id: number): ThriftList {
  const content = struct.get(id)?.content;
  if (typeof content === 'object' && 'elementType' in content) return content;
  return missing(id);
}

export function setInteger(struct: ThriftStruct, id: number, value: bigint): void {
  const present = struct.get(id);
  if (present !== undefined) struct.set(id, { type: present.type, content: value });
}

function missing(id: number): never {
  throw new TmaxError('EBADMSG', `the footer of the Parquet file lacks field ${id}`, { source: 'dataset' });
}

export function unsupported(what: string): TmaxError {
  return new TmaxError('ENOTSUP', `this Parquet file can't be rewritten: ${what}`, { source: 'dataset' });
}
