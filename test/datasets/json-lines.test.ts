import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { rewriteJsonLines } from '../../src/datasets/json-lines.js';
import type { Decide } from '../../src/datasets/rows.js';
import { temporaryFolder } from '../support/temporary.js';

const NEW = '/tmax/solvable/t.sif';
const always: Decide = async () => ({ image: NEW });

async function rewritten(
  t: ExecutionContext,
  text: string | Buffer,
  {
    decide = always,
    column = 'env_config.image',
    maxLineBytes,
  }: { decide?: Decide; column?: string; maxLineBytes?: number } = {},
) {
  const input = join(temporaryFolder(t), 'in.jsonl');
  writeFileSync(input, text);
  const chunks: Buffer[] = [];
  const result = await rewriteJsonLines({
    input,
    column: column.split('.'),
    decide,
    write: async (bytes) => void chunks.push(bytes),
    ...(maxLineBytes === undefined ? {} : { maxLineBytes }),
  });
  return { result, text: Buffer.concat(chunks).toString() };
}

test('order of keys, large numbers, floats, escapes, white space and line ends stay as they are', async (t) => {
  const line = (image: string) =>
    `{"z": 12345678901234567890123, "a":1.0, "e": 1E+2, "n": -0, "s":"\\u00e4\\/ä\\ud800", "env_config" : {"b":[ ],"image": ${image} ,"c":9007199254740993}}`;
  const { text, result } = await rewritten(t, `${line('"x:y"')}\r\n\n${line('null')}\n${line('{"deep":1}')}`);
  t.is(text, `${line(`"${NEW}"`)}\r\n\n${line(`"${NEW}"`)}\n${line(`"${NEW}"`)}`);
  t.is(result.rows, 3);
});

test('a last line without an end gets none, and an empty file stays empty', async (t) => {
  t.is((await rewritten(t, '{"env_config":{"image":"x"}}')).text, `{"env_config":{"image":"${NEW}"}}`);
  t.deepEqual(await rewritten(t, ''), { text: '', result: { rows: 0, unresolvedCount: 0, unresolved: [] } });
});

test('a key that is the whole name of the column is it', async (t) => {
  t.is((await rewritten(t, '{"env_config.image":"x"}\n')).text, `{"env_config.image":"${NEW}"}\n`);
  t.is((await rewritten(t, '{"image":"x"}\n', { column: 'image' })).text, `{"image":"${NEW}"}\n`);
});

test('rows that can’t be resolved are numbered by line, and nothing more is written', async (t) => {
  const decide: Decide = async (_row, current) => (current === 'good' ? { image: NEW } : { reason: 'unknown' });
  const row = (image: string) => `{"env_config":{"image":${image}}}\n`;
  const { result, text } = await rewritten(t, `${row('"good"')}\n${row('"bad"')}{"x":1}\n${row('"good"')}`, { decide });
  t.deepEqual(result, {
    rows: 4,
    unresolvedCount: 2,
    unresolved: [
      { number: 3, value: 'bad', reason: 'unknown' },
      { number: 4, value: null, reason: 'the row has no env_config.image' },
    ],
  });
  t.is(text, `${row(`"${NEW}"`)}\n`);
});

test('at most a thousand are listed, all are counted', async (t) => {
  const decide: Decide = async () => ({ reason: 'unknown' });
  const { result } = await rewritten(t, '{"env_config":{"image":"x"}}\n'.repeat(1500), { decide });
  t.is(result.unresolved.length, 1000);
  t.is(result.unresolvedCount, 1500);
});

for (const [what, text, words] of [
  ['that is no JSON', '{"env_config":{"image":"x"}}\n{"a":\n', /^line 2 can't be rewritten: it is not JSON/],
  ['with a comment', '{"env_config":{"image":"x"}} // no\n', /^line 1 .*not JSON/],
  ['with a trailing comma', '{"env_config":{"image":"x",}}\n', /^line 1 .*not JSON/],
  ['that is not UTF-8', Buffer.from([0x22, 0xff, 0x22, 0x0a]), /^line 1 .*not UTF-8/],
  ['that has the column twice', '{"env_config":{"image":"x","image":"y"}}\n', /^line 1 .*twice/],
  ['that has the struct twice', '{"env_config":{"image":"x"},"env_config":{}}\n', /^line 1 .*twice/],
] as const) {
  test(`a line ${what} is an error with its number`, async (t) => {
    await t.throwsAsync(rewritten(t, text), { name: 'TmaxError', message: words });
  });
}

test('a line that never ends is not read for ever', async (t) => {
  await t.throwsAsync(rewritten(t, `{"a":1}\n{"b":"${'x'.repeat(300_000)}`, { maxLineBytes: 100_000 }), {
    message: /^line 2 .*more than 100000 bytes/,
  });
});

/** JSON as text, in all the spellings that are allowed. */
const { value: jsonText } = fc.letrec((tie) => ({
  space: fc.constantFrom('', ' ', '\t', '  '),
  string: fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 10 }).map((text) => JSON.stringify(text)),
    fc.constantFrom('"\\u0041\\n"', '"\\ud83d\\ude00"', '"\\/"', '"image"', '"env_config"'),
  ),
  number: fc.oneof(
    fc.bigInt().map(String),
    fc.constantFrom('-0', '1.0', '1.50', '1e5', '1E-7', '123456789012345678901234567890.5'),
  ),
  pair: fc
    .tuple(tie('string'), tie('space'), tie('value'))
    .map(([key, space, value]) => `${key}${space}:${space}${value}`),
  object: fc.array(tie('pair'), { maxLength: 3 }).map((pairs) => `{${pairs.join(',')}}`),
  array: fc
    .tuple(tie('space'), fc.array(tie('value'), { maxLength: 3 }))
    .map(([space, items]) => `[${space}${items.join(`,${space}`)}]`),
  value: fc.oneof(
    { depthSize: 'small' },
    tie('string'),
    tie('number'),
    fc.constantFrom('true', 'null'),
    tie('object'),
    tie('array'),
  ),
}));

test('rewriting changes that field only, whatever else a row holds', async (t) => {
  const json = jsonText as fc.Arbitrary<string>;
  const fields = fc
    .array(json, { maxLength: 4 })
    .map((values) => values.map((value, index) => `"k${index}" : ${value}`));
  await fc.assert(
    fc.asyncProperty(fields, fields, fields, json, async (before, after, beside, old) => {
      const line = (image: string) =>
        `{${[...before, `"env_config":{${[...beside, `"image":${image}`].join(' , ')}}`, ...after].join(',')}}\n`;
      t.is((await rewritten(t, line(old))).text, line(JSON.stringify(NEW)));
    }),
    { numRuns: 200 },
  );
});
