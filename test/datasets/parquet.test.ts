import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { asyncBufferFromFile, parquetMetadata, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { rewriteParquet } from '../../src/datasets/parquet.js';
import {
  ColumnChunk,
  ColumnMetaData,
  FileMetaData,
  integerAt,
  RowGroup,
  readFooter,
  structAt,
  structsAt,
} from '../../src/datasets/parquet-footer.js';
import type { Decide } from '../../src/datasets/rows.js';
import { decodeStruct, encodeStruct } from '../../src/datasets/thrift.js';
import { packagePath } from '../support/paths.js';
import { temporaryFolder } from '../support/temporary.js';

const FIXTURES = packagePath('test', 'fixtures', 'datasets');
const COLUMN = ['env_config', 'image'];

/** Every row resolves to a path that holds what was there. */
const toPath: Decide = async (_row, current) => ({ image: `/tmax/solvable/${current}.sif` });

async function rewritten(input: string, decide: Decide = toPath, column = COLUMN) {
  const chunks: Buffer[] = [];
  const result = await rewriteParquet({
    input,
    column,
    otherColumns: [['env_config', 'task_id'], ['id']],
    decide,
    write: async (bytes) => void chunks.push(Buffer.from(bytes)),
  });
  return { result, bytes: Buffer.concat(chunks) };
}

async function rowsOf(path: string): Promise<Record<string, unknown>[]> {
  return parquetReadObjects({ file: await asyncBufferFromFile(path), compressors });
}

async function footerOf(path: string) {
  const file = await open(path, 'r');
  try {
    return await readFooter(file);
  } finally {
    await file.close();
  }
}

async function compare(t: ExecutionContext, input: string, column = COLUMN): Promise<void> {
  const folder = temporaryFolder(t);
  const output = join(folder, 'out.parquet');
  const { result, bytes } = await rewritten(input, toPath, column);
  writeFileSync(output, bytes);
  t.deepEqual(result.unresolved, []);
  const [before, after] = [await rowsOf(input), await rowsOf(output)];
  t.is(after.length, before.length);
  const set = (row: Record<string, unknown>) => {
    const copy = structuredClone(row) as Record<string, Record<string, unknown>>;
    const [first = '', second] = column;
    if (second === undefined) return { ...copy, [first]: `/tmax/solvable/${copy[first]}.sif` };
    return { ...copy, [first]: { ...copy[first], [second]: `/tmax/solvable/${copy[first]?.[second]}.sif` } };
  };
  t.deepEqual(after, before.map(set));
  // All that was there is there, at its own place.
  const original = readFileSync(input);
  const { metadata: old, offset } = await footerOf(input);
  t.true(bytes.subarray(0, offset).equals(original.subarray(0, offset)));
  const { metadata: now } = await footerOf(output);
  const groups = structsAt(old, FileMetaData.ROW_GROUPS);
  t.true(groups.length > 0);
  for (const [index, group] of groups.entries()) {
    const rewrittenGroup = structsAt(now, FileMetaData.ROW_GROUPS)[index] ?? new Map();
    let changed = 0;
    for (const [place, chunk] of structsAt(group, RowGroup.COLUMNS).entries()) {
      const other = structsAt(rewrittenGroup, RowGroup.COLUMNS)[place] ?? new Map();
      if (encodeStruct(chunk).equals(encodeStruct(other))) continue;
      changed += 1;
      const meta = structAt(other, ColumnChunk.META_DATA);
      t.true((integerAt(meta, ColumnMetaData.DATA_PAGE_OFFSET) ?? 0n) >= BigInt(offset));
    }
    t.is(changed, 1, 'one column alone is described otherwise');
  }
  for (const id of [FileMetaData.SCHEMA, 3, 5, 6, 7])
    t.deepEqual(now.get(id), old.get(id), `field ${id} of the footer`);
}

for (const name of ['none', 'snappy', 'gzip', 'brotli', 'zstd', 'lz4', 'pages-v2']) {
  test(`pyarrow's ${name}: one column changes, every other byte stays`, async (t) => {
    await compare(t, join(FIXTURES, `${name}.parquet`));
  });
}

test('a column at the top that can’t be null is rewritten too', async (t) => {
  await compare(t, join(FIXTURES, 'required.parquet'), ['image']);
});

test('what the rows were sorted by is not claimed any more', async (t) => {
  const { bytes } = await rewritten(join(FIXTURES, 'pages-v2.parquet'));
  const old = await footerOf(join(FIXTURES, 'pages-v2.parquet'));
  const sorted = structsAt(old.metadata, FileMetaData.ROW_GROUPS).map((group) => group.has(RowGroup.SORTING_COLUMNS));
  t.deepEqual(sorted, [true]);
  const output = join(temporaryFolder(t), 'out.parquet');
  writeFileSync(output, bytes);
  const [group] = structsAt((await footerOf(output)).metadata, FileMetaData.ROW_GROUPS);
  t.false(group?.has(RowGroup.SORTING_COLUMNS));
});

test('a footer that is decoded and encoded again is the same, byte for byte', (t) => {
  const names = readdirSync(FIXTURES).filter((name) => name.endsWith('.parquet'));
  t.true(names.length >= 9);
  for (const name of names) {
    const file = readFileSync(join(FIXTURES, name));
    const footer = file.subarray(file.length - 8 - file.readUInt32LE(file.length - 8), file.length - 8);
    t.true(encodeStruct(decodeStruct(footer)).equals(footer), name);
  }
});

test('a struct that is null, and an image that is null, are decided apart', async (t) => {
  const input = join(FIXTURES, 'holes.parquet');
  const { result } = await rewritten(input, async (_row, current) =>
    current === undefined ? { reason: 'no image' } : { image: 'x' },
  );
  t.deepEqual(
    result.unresolved.map(({ number, value, reason }) => [number, value, reason]),
    [
      [3, null, 'env_config is null'],
      [5, null, 'no image'],
    ],
  );
  t.is(result.rows, 7);
});

test('the other columns that decide are handed over', async (t) => {
  const seen: unknown[] = [];
  await rewritten(join(FIXTURES, 'zstd.parquet'), async (row) => {
    seen.push((row as { env_config: { task_id: string } }).env_config.task_id);
    return { image: 'x' };
  });
  t.deepEqual(seen.slice(0, 2), ['task_000000_00000000', 'task_000001_00000001']);
  t.is(seen.length, 7);
});

test('columns that can’t be replaced are refused, each with the reason', async (t) => {
  const input = join(FIXTURES, 'none.parquet');
  await t.throwsAsync(rewritten(input, toPath, ['env_config', 'picture']), {
    message: /no column env_config\.picture; it has small, large/,
  });
  await t.throwsAsync(rewritten(input, toPath, ['env_config', 'tags', 'list', 'element']), { message: /is a list/ });
  await t.throwsAsync(rewritten(input, toPath, ['small']), { message: /holds no text/ });
});

test('what is no sound Parquet file is refused, wherever it is broken', async (t) => {
  const folder = temporaryFolder(t);
  const sound = readFileSync(join(FIXTURES, 'snappy.parquet'));
  const path = join(folder, 'broken.parquet');
  for (const bytes of [
    Buffer.from('PAR1'),
    sound.subarray(0, sound.length - 1),
    Buffer.concat([sound.subarray(0, -4), Buffer.from('PARE')]),
  ]) {
    writeFileSync(path, bytes);
    await t.throwsAsync(rewritten(path), { name: 'TmaxError' });
  }
  const footerAt = sound.length - 8 - sound.readUInt32LE(sound.length - 8);
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: footerAt, max: sound.length - 1 }),
      fc.integer({ min: 1, max: 255 }),
      async (at, change) => {
        const broken = Buffer.from(sound);
        broken.writeUInt8(broken.readUInt8(at) ^ change, at);
        writeFileSync(path, broken);
        await rewritten(path).catch((error: unknown) => {
          if (!(error instanceof Error) || error.name !== 'TmaxError') throw error;
        });
      },
    ),
    // The first: where a part of a column lies is no number any more, while other parts are being read.
    { numRuns: 60, examples: [[footerAt + 2226, 255]] },
  );
  t.pass();
});

test('rewriting changes that column only, whatever the others hold', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tmaxfs-test-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const [input, output] = [join(folder, 'in.parquet'), join(folder, 'out.parquet')];
  const text = fc.string({ unit: 'grapheme', maxLength: 20 });
  const row = fc.record({
    image: text,
    other: fc.option(text),
    big: fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n),
    number: fc.double(),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(row, { minLength: 1, maxLength: 50 }),
      fc.integer({ min: 1, max: 20 }),
      async (rows, rowGroupSize) => {
        const bytes = parquetWriteBuffer({
          schema: [
            { name: 'root', num_children: 3 },
            { name: 'big', type: 'INT64', repetition_type: 'REQUIRED' },
            { name: 'env_config', num_children: 2, repetition_type: 'OPTIONAL' },
            { name: 'other', type: 'BYTE_ARRAY', converted_type: 'UTF8', repetition_type: 'OPTIONAL' },
            { name: 'image', type: 'BYTE_ARRAY', converted_type: 'UTF8', repetition_type: 'OPTIONAL' },
            { name: 'number', type: 'DOUBLE', repetition_type: 'REQUIRED' },
          ],
          columnData: [
            { name: 'big', data: rows.map(({ big }) => big) },
            { name: 'env_config', data: rows.map(({ image, other }) => ({ other, image })) },
            { name: 'number', data: rows.map(({ number }) => number) },
          ],
          rowGroupSize,
        });
        writeFileSync(input, Buffer.from(bytes));
        writeFileSync(output, (await rewritten(input)).bytes);
        const [before, after] = [await rowsOf(input), await rowsOf(output)];
        t.deepEqual(
          after,
          before.map((one) => {
            const config = one['env_config'] as { image: string };
            return { ...one, env_config: { ...config, image: `/tmax/solvable/${config.image}.sif` } };
          }),
        );
        t.deepEqual(parquetMetadata(toArrayBuffer(readFileSync(output))).num_rows, BigInt(rows.length));
      },
    ),
    { numRuns: 40 },
  );
});

function toArrayBuffer(bytes: Buffer): ArrayBuffer {
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
}
