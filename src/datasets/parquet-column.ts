/** The one column of a Parquet file that is replaced: where it stands, its new pages, and how a footer points to them. */

import { parquetWriteBuffer } from 'hyparquet-writer';
import { TmaxError } from '../errors.js';
import {
  BYTE_ARRAY,
  ColumnChunk,
  ColumnMetaData,
  FileMetaData,
  integerAt,
  listAt,
  Repetition,
  RowGroup,
  requiredInteger,
  SchemaElement,
  SortingColumn,
  setInteger,
  structAt,
  structsAt,
  TAIL_BYTES,
  textOf,
  UNCOMPRESSED,
  unsupported,
} from './parquet-footer.js';
import type { ColumnPath } from './rows.js';
import { decodeStruct, type ThriftStruct, ThriftType } from './thrift.js';

/** A column that holds values, and where it stands. */
export interface Leaf {
  readonly path: ColumnPath;
  /** Among the columns of a row group. */
  readonly index: number;
  /** For each step of the path. */
  readonly isOptional: readonly boolean[];
}

/** Errors: EINVAL there is no such column; ENOTSUP it can't be replaced. */
export function findLeaf(metadata: ThriftStruct, column: ColumnPath): Leaf {
  const wanted = column.join('.');
  const leaves: string[] = [];
  const [root, ...elements] = structsAt(metadata, FileMetaData.SCHEMA);
  let next = 0;
  let found: (Leaf & { readonly element: ThriftStruct; readonly repetitions: readonly bigint[] }) | undefined;
  const visit = (children: bigint, path: ColumnPath, repetitions: readonly bigint[]): void => {
    for (let child = 0n; child < children; child += 1n) {
      const element = elements[next];
      next += 1;
      if (element === undefined) throw new TmaxError('EBADMSG', 'the schema ends too early', { source: 'dataset' });
      const inner = [...path, textOf(element, SchemaElement.NAME)];
      const all = [...repetitions, integerAt(element, SchemaElement.REPETITION) ?? Repetition.REQUIRED];
      const grandchildren = integerAt(element, SchemaElement.CHILDREN) ?? 0n;
      if (grandchildren > 0n) visit(grandchildren, inner, all);
      else {
        if (inner.join('.') === wanted) {
          const isOptional = all.map((repetition) => repetition === Repetition.OPTIONAL);
          found = { path: inner, index: leaves.length, isOptional, element, repetitions: all };
        }
        leaves.push(inner.join('.'));
      }
    }
  };
  visit(root === undefined ? 0n : (integerAt(root, SchemaElement.CHILDREN) ?? 0n), [], []);
  if (found === undefined) {
    const message = `the data set has no column ${wanted}; it has ${leaves.slice(0, 30).join(', ')} (--column, --task-column)`;
    throw new TmaxError('EINVAL', message, { source: 'cli' });
  }
  if (found.repetitions.includes(Repetition.REPEATED)) throw unsupported(`${wanted} is a list`);
  if (integerAt(found.element, SchemaElement.TYPE) !== BYTE_ARRAY) throw unsupported(`${wanted} holds no text`);
  return found;
}

function chunkOf(group: ThriftStruct, { index, path }: Leaf): ThriftStruct {
  const chunk = structsAt(group, RowGroup.COLUMNS)[index];
  const meta = chunk === undefined ? undefined : structAt(chunk, ColumnChunk.META_DATA);
  const names = meta === undefined ? [] : listAt(meta, ColumnMetaData.PATH).items.map(String);
  if (chunk === undefined || names.join('.') !== path.join('.')) {
    throw new TmaxError('EBADMSG', 'the columns of a row group are not those of the schema', { source: 'dataset' });
  }
  if (chunk.has(ColumnChunk.FILE_PATH)) throw unsupported('its columns lie in other files');
  if (chunk.has(ColumnChunk.CRYPTO_METADATA)) throw unsupported('the column is encrypted');
  return chunk;
}

/** Only what every reader knows is written: none, or Snappy in the place of any other. */
export function codecOf(group: ThriftStruct, leaf: Leaf): 'UNCOMPRESSED' | 'SNAPPY' {
  const codec = integerAt(structAt(chunkOf(group, leaf), ColumnChunk.META_DATA), ColumnMetaData.CODEC);
  return codec === UNCOMPRESSED ? 'UNCOMPRESSED' : 'SNAPPY';
}

export interface Pages {
  readonly bytes: Buffer;
  /** As in the small file that they were written in, whose pages begin at `start`. */
  readonly meta: ThriftStruct;
  readonly start: bigint;
}

/** The pages of one column, as a file of that column alone has them. */
export function encodeColumn(
  { path, isOptional }: Leaf,
  values: readonly string[],
  codec: 'UNCOMPRESSED' | 'SNAPPY',
): Pages {
  const [name = '', ...inner] = path;
  const schema = path.map((step, depth) => ({
    name: step,
    repetition_type: isOptional[depth] ? ('OPTIONAL' as const) : ('REQUIRED' as const),
    ...(depth === path.length - 1
      ? { type: 'BYTE_ARRAY' as const, converted_type: 'UTF8' as const }
      : { num_children: 1 }),
  }));
  const data = values.map((value) => inner.reduceRight<unknown>((nested, step) => ({ [step]: nested }), value));
  const small = Buffer.from(
    parquetWriteBuffer({
      schema: [{ name: 'schema', num_children: 1 }, ...schema],
      columnData: [{ name, data, offsetIndex: false }],
      codec,
      statistics: false,
      rowGroupSize: values.length,
    }),
  );
  const footerBytes = small.readUInt32LE(small.length - TAIL_BYTES);
  const metadata = decodeStruct(small.subarray(small.length - TAIL_BYTES - footerBytes, small.length - TAIL_BYTES));
  const [group] = structsAt(metadata, FileMetaData.ROW_GROUPS);
  const [chunk] = group === undefined ? [] : structsAt(group, RowGroup.COLUMNS);
  if (chunk === undefined) throw new Error('the writer of Parquet wrote no column');
  const meta = structAt(chunk, ColumnChunk.META_DATA);
  const start =
    integerAt(meta, ColumnMetaData.DICTIONARY_PAGE_OFFSET) ?? requiredInteger(meta, ColumnMetaData.DATA_PAGE_OFFSET);
  const length = requiredInteger(meta, ColumnMetaData.COMPRESSED_SIZE);
  return { bytes: small.subarray(Number(start), Number(start + length)), meta, start };
}

/** Fields of the new pages that hold for the new file too. Statistics, indexes and filters of the old ones do not. */
const KEPT_FIELDS = [
  ColumnMetaData.TYPE,
  ColumnMetaData.ENCODINGS,
  ColumnMetaData.CODEC,
  ColumnMetaData.VALUES,
  ColumnMetaData.UNCOMPRESSED_SIZE,
  ColumnMetaData.COMPRESSED_SIZE,
  ColumnMetaData.DATA_PAGE_OFFSET,
  ColumnMetaData.DICTIONARY_PAGE_OFFSET,
];
const INDEX_FIELDS = [
  ColumnChunk.OFFSET_INDEX_OFFSET,
  ColumnChunk.OFFSET_INDEX_LENGTH,
  ColumnChunk.COLUMN_INDEX_OFFSET,
  ColumnChunk.COLUMN_INDEX_LENGTH,
];

/** Has a row group take the new pages, which begin at `position` of the new file. */
export function pointTo(group: ThriftStruct, leaf: Leaf, { meta: written, start }: Pages, position: number): void {
  const chunk = chunkOf(group, leaf);
  const old = structAt(chunk, ColumnChunk.META_DATA);
  const meta: ThriftStruct = new Map();
  for (const id of KEPT_FIELDS) {
    const field = written.get(id);
    if (field !== undefined) meta.set(id, field);
  }
  const path = old.get(ColumnMetaData.PATH);
  if (path !== undefined) meta.set(ColumnMetaData.PATH, path);
  const moved = BigInt(position) - start;
  for (const id of [ColumnMetaData.DATA_PAGE_OFFSET, ColumnMetaData.DICTIONARY_PAGE_OFFSET]) {
    const at = integerAt(meta, id);
    if (at !== undefined) setInteger(meta, id, at + moved);
  }
  const grown = (id: number) => requiredInteger(meta, id) - requiredInteger(old, id);
  add(group, RowGroup.TOTAL_BYTE_SIZE, grown(ColumnMetaData.UNCOMPRESSED_SIZE));
  add(group, RowGroup.TOTAL_COMPRESSED_SIZE, grown(ColumnMetaData.COMPRESSED_SIZE));
  chunk.set(ColumnChunk.META_DATA, { type: ThriftType.STRUCT, content: meta });
  // Once where the column's description was; writers of today say 0.
  setInteger(chunk, ColumnChunk.FILE_OFFSET, 0n);
  for (const id of INDEX_FIELDS) chunk.delete(id);
  // What was sorted by the old values is not by the new ones.
  const isSortedByIt =
    group.has(RowGroup.SORTING_COLUMNS) &&
    structsAt(group, RowGroup.SORTING_COLUMNS).some(
      (one) => integerAt(one, SortingColumn.COLUMN) === BigInt(leaf.index),
    );
  if (isSortedByIt) group.delete(RowGroup.SORTING_COLUMNS);
}

function add(struct: ThriftStruct, id: number, more: bigint): void {
  const present = integerAt(struct, id);
  if (present !== undefined) setInteger(struct, id, present + more);
}
