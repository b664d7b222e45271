/**
 * Parquet, one column replaced. The file is not written anew: all that it holds stays where it is, byte for byte; new pages of the one
 * column follow behind, and a new footer points to them. So types, nulls, nesting, codecs, indexes and unknown fields of every
 * other column are what they were. The old pages stay too, and nobody is led to them.
 */

import { type FileHandle, open } from 'node:fs/promises';
import { type FileMetaData as Metadata, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { messageOf, TmaxError } from '../errors.js';
import { codecOf, encodeColumn, findLeaf, pointTo } from './parquet-column.js';
import {
  FileMetaData,
  MAGIC,
  RowGroup,
  readAt,
  readFooter,
  requiredInteger,
  structsAt,
  TAIL_BYTES,
  unsupported,
} from './parquet-footer.js';
import { type ColumnPath, type Decide, type RewriteResult, RowCount, textAt } from './rows.js';
import { encodeStruct, type ThriftStruct } from './thrift.js';

export interface ParquetOptions {
  readonly input: string;
  readonly column: ColumnPath;
  /** Columns that `decide` looks at besides, where the file has them. */
  readonly otherColumns: readonly ColumnPath[];
  readonly decide: Decide;
  /** Takes the output in order. */
  readonly write: (bytes: Buffer) => Promise<void>;
}

const COPY_BYTES = 4 * 1024 * 1024;

/** Errors: EBADMSG no sound Parquet file; ENOTSUP a column that can't be replaced; those of reading and writing. */
export async function rewriteParquet(options: ParquetOptions): Promise<RewriteResult> {
  const file = await open(options.input, 'r');
  try {
    return await rewrite(file, options);
  } catch (cause) {
    if (cause instanceof TmaxError) throw cause;
    throw new TmaxError('EBADMSG', `the Parquet file can't be read: ${messageOf(cause)}`, { cause, source: 'dataset' });
  } finally {
    await file.close();
  }
}

async function rewrite(file: FileHandle, { column, otherColumns, decide, write }: ParquetOptions) {
  const { metadata, offset } = await readFooter(file);
  if (metadata.has(FileMetaData.ENCRYPTION_ALGORITHM)) throw unsupported('it is encrypted');
  const leaf = findLeaf(metadata, column);
  const reader = await RowReader.open(file, [leaf.path, ...otherColumns]);
  const count = new RowCount();
  for (let start = 0; start < offset; start += COPY_BYTES) {
    await write(await readAt(file, start, Math.min(COPY_BYTES, offset - start)));
  }
  let end = offset;
  for (const group of structsAt(metadata, FileMetaData.ROW_GROUPS)) {
    const values = await decideAll(await reader.next(group), leaf.path, decide, count);
    if (!count.isComplete || values.length === 0) continue;
    const pages = encodeColumn(leaf, values, codecOf(group, leaf));
    await write(pages.bytes);
    pointTo(group, leaf, pages, end);
    end += pages.bytes.length;
  }
  if (!count.isComplete) return count.result();
  const footer = encodeStruct(metadata);
  const tail = Buffer.alloc(TAIL_BYTES);
  tail.writeUInt32LE(footer.length, 0);
  MAGIC.copy(tail, 4);
  await write(Buffer.concat([footer, tail]));
  return count.result();
}

async function decideAll(
  rows: readonly unknown[],
  path: ColumnPath,
  decide: Decide,
  count: RowCount,
): Promise<readonly string[]> {
  const values: string[] = [];
  for (const row of rows) {
    const number = count.nextNumber;
    const current = textAt(row, path);
    const decision = hasParents(row, path)
      ? await decide(row, current)
      : { reason: `${path.slice(0, -1).join('.')} is null` };
    if ('reason' in decision) count.unresolved(number, current, decision.reason);
    else {
      count.resolved();
      values.push(decision.image);
    }
  }
  return values;
}

/** A struct that is null has no field to be set: the other columns of it say that it is null. */
function hasParents(row: unknown, path: ColumnPath): boolean {
  let value: unknown = row;
  for (const step of path.slice(0, -1)) {
    value = typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[step] : undefined;
  }
  return typeof value === 'object' && value !== null;
}

/** Reads the columns that matter, a row group at a time. */
class RowReader {
  #rowStart = 0;

  private constructor(
    readonly file: { byteLength: number; slice: (start: number, end?: number) => Promise<ArrayBuffer> },
    readonly metadata: Metadata,
    readonly columns: string[],
  ) {}

  static async open(handle: FileHandle, columns: readonly ColumnPath[]): Promise<RowReader> {
    const { size } = await handle.stat();
    const file = {
      byteLength: size,
      slice: (start: number, end = size) => {
        const bytes = sliceOf(handle, size, start, end);
        // The library asks for several at one time and, once it has given up, waits for none of them.
        bytes.catch(() => undefined);
        return bytes;
      },
    };
    const metadata = await parquetMetadataAsync(file);
    const known = new Set(
      metadata.row_groups.flatMap(({ columns: all }) => all.map((one) => one.meta_data?.path_in_schema[0])),
    );
    const names = new Set(columns.flatMap(([first = '']) => (known.has(first) ? [first] : [])));
    return new RowReader(file, metadata, [...names]);
  }

  async next(group: ThriftStruct): Promise<readonly unknown[]> {
    const rowStart = this.#rowStart;
    this.#rowStart += Number(requiredInteger(group, RowGroup.ROWS));
    if (this.#rowStart === rowStart) return [];
    const { file, metadata, columns } = this;
    return parquetReadObjects({ file, metadata, columns, rowStart, rowEnd: this.#rowStart, compressors });
  }
}

/** Errors: EBADMSG where there is no such part of the file. */
async function sliceOf(handle: FileHandle, size: number, start: number, end: number): Promise<ArrayBuffer> {
  // What a damaged footer says may be no number at all.
  if (!(start >= 0 && start <= end && end <= size)) {
    throw new TmaxError('EBADMSG', `the Parquet file has no bytes ${start} to ${end}: is it damaged?`, {
      source: 'dataset',
    });
  }
  const bytes = await readAt(handle, start, end - start);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
}
