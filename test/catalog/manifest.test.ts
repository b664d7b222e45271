import test from 'ava';
import fc from 'fast-check';
import { buildCatalog } from '../../src/catalog/build-catalog.js';
import type { Catalog, CatalogSources, ListedFile, OtherRepository } from '../../src/catalog/catalog.js';
import { manifestForm } from '../../src/catalog/manifest.js';
import { type NameTemplate, nameOfRow, parseNameTemplate } from '../../src/catalog/name-template.js';
import { nameProblem, pathProblem } from '../../src/catalog/names.js';
import { TmaxError } from '../../src/errors.js';
import { POOL_IMAGES, POOL_TASKS, poolImages, poolTaskMap } from '../support/pool-scale.js';

const COMMIT = 'c'.repeat(40);
const OTHER = 'd'.repeat(40);

function listed(path: string, digit: string, sizeBytes = 100): ListedFile {
  return { path, sizeBytes, sha256: digit.repeat(64) };
}

function row(path: string, digit: string, more: Readonly<Record<string, unknown>> = {}) {
  return { sif_sha256: digit.repeat(64), sif_bytes: 100, hf_path: path, ...more };
}

function sourcesOf(
  rows: readonly unknown[] | string,
  listing: readonly ListedFile[],
  others: readonly OtherRepository[] = [],
): CatalogSources {
  const index = typeof rows === 'string' ? rows : rows.map((one) => JSON.stringify(one)).join('\n');
  return { repository: 'org/pool', commit: COMMIT, date: new Date(0), kind: 'manifest', index, listing, others };
}

test('a row is a task, named by the first of its ids', (t) => {
  const rows = [
    row('a.sif', 'a', { task_id: 'one', instance_id: 'no' }),
    row('b.sif', 'b', { instance_id: 'two' }),
    row('c.sif', 'c', { id: 3 }),
    row('d.sif', 'd', { sif_name: 'four.sif', id: null }),
  ];
  const catalog = buildCatalog(
    sourcesOf(
      rows,
      ['a', 'b', 'c', 'd'].map((name) => listed(`${name}.sif`, name)),
    ),
  );
  const tasks = catalog.variants.get('images')?.tasks;
  t.deepEqual([...(tasks?.keys() ?? [])], ['one', 'two', '3', 'four']);
  t.deepEqual(tasks?.get('two'), {
    ...{ repository: 'org/pool', commit: COMMIT, path: 'b.sif', sha256: 'b'.repeat(64), sizeBytes: 100 },
  });
  t.is(catalog.problemCount, 0);
});

test('an image that lies elsewhere has the address of that repository, at the commit that its revision stood for', (t) => {
  const other = { repository: 'org/other', revision: 'v1', commit: OTHER, listing: [listed('x/b.sif', 'b')] };
  const rows = [
    row('a.sif', 'a', { id: 'own' }),
    row('x/b.sif', 'b', { id: 'far', hf_repo: 'org/other', hf_revision: 'v1' }),
  ];
  const catalog = buildCatalog(sourcesOf(rows, [listed('a.sif', 'a')], [other]));
  t.like(catalog.variants.get('images')?.tasks.get('far'), { repository: 'org/other', commit: OTHER, path: 'x/b.sif' });
  t.is(catalog.blobs.size, 2);
  t.deepEqual(catalog.directories, ['', 'x']);
});

test('two repositories may have one path, and two images there', (t) => {
  const other = { repository: 'org/other', revision: 'main', commit: OTHER, listing: [listed('a.sif', 'b')] };
  const rows = [row('a.sif', 'a', { id: 'own' }), row('a.sif', 'b', { id: 'far', hf_repo: 'org/other' })];
  const catalog = buildCatalog(sourcesOf(rows, [listed('a.sif', 'a')], [other]));
  const tasks = catalog.variants.get('images')?.tasks;
  t.is(tasks?.get('own')?.sha256, 'a'.repeat(64));
  t.is(tasks?.get('far')?.sha256, 'b'.repeat(64));
  t.is(catalog.blobs.size, 2);
});

test('what is asked of other repositories are the files that are named there, once for each repository and revision', (t) => {
  const rows = [
    row('a.sif', 'a'),
    row('a.sif', 'a', { hf_repo: 'org/pool' }),
    row('b.sif', 'b', { hf_repo: 'org/other' }),
    row('c.sif', 'c', { hf_repo: 'org/other', hf_revision: 'main' }),
    row('d.sif', 'd', { hf_repo: 'org/other', hf_revision: 'v1' }),
    row('e.sif', 'e', { hf_revision: OTHER }),
    row('f.sif', 'f', { hf_repo: 'no repository' }),
    row('../g.sif', '1', { hf_repo: 'org/more' }),
  ];
  const { index } = sourcesOf(rows, []);
  t.deepEqual(manifestForm.filesElsewhere(index, 'org/pool'), [
    { repository: 'org/other', revision: 'main', paths: new Set(['b.sif', 'c.sif']) },
    { repository: 'org/other', revision: 'v1', paths: new Set(['d.sif']) },
    { repository: 'org/pool', revision: OTHER, paths: new Set(['e.sif']) },
  ]);
});

test('a manifest that names no end of repositories is refused', (t) => {
  const rows = Array.from({ length: 17 }, (_, number) => row('a.sif', 'a', { hf_repo: `org/r${number}` }));
  const { index } = sourcesOf(rows, []);
  const error = t.throws(() => manifestForm.filesElsewhere(index, 'org/pool'), { instanceOf: TmaxError });
  t.is(error?.errno, 'EBADMSG');
  t.regex(error?.message ?? '', /more than 16 other repositories/);
});

for (const [what, wrong, reason] of [
  ['without a digest', { sif_sha256: undefined }, /no usable sif_sha256 \(64 lower-case hex digits\)/],
  ['with a digest in capitals', { sif_sha256: 'A'.repeat(64) }, /sif_sha256/],
  ['of no size', { sif_bytes: 0 }, /sif_bytes \(a positive integer\)/],
  ['of a size in words', { sif_bytes: '100' }, /sif_bytes/],
  ['of a size beyond all integers', { sif_bytes: 2 ** 60 }, /sif_bytes/],
  ['without a path', { hf_path: null }, /hf_path \(a path\)/],
  ['that climbs out of the repository', { hf_path: '../../etc/shadow' }, /"\.\."/],
  ['in a repository that is none', { hf_repo: 'https://evil.example/x' }, /hf_repo \(owner\/name/],
  ['in a repository with dots for a way out', { hf_repo: 'o/p..q' }, /hf_repo \(owner\/name/],
  ['at a revision that is none', { hf_repo: 'o/p', hf_revision: 'a b' }, /hf_revision \(a branch/],
  ['at a revision that climbs', { hf_repo: 'o/p', hf_revision: '../main' }, /hf_revision \(a branch/],
  ['whose path is not listed', { hf_path: 'gone.sif' }, /"gone.sif" is not in the repository/],
  ['in a repository that was not listed', { hf_repo: 'o/p' }, /"a.sif" is not in o\/p@main/],
  [
    'that is listed with another digest',
    { sif_sha256: 'b'.repeat(64) },
    /another sha256 in the listing of the repository/,
  ],
  ['that is listed with another size', { sif_bytes: 99 }, /has 100 bytes in the listing of the repository, and 99/],
] as const) {
  test(`a row ${what} is unresolvable with its reason, and the rest works`, (t) => {
    const rows = [row('a.sif', 'a', { id: 'broken', ...wrong }), row('a.sif', 'a', { id: 'fine' })];
    const catalog = buildCatalog(sourcesOf(rows, [listed('a.sif', 'a')]));
    const variant = catalog.variants.get('images');
    t.deepEqual([...(variant?.tasks.keys() ?? [])], ['fine']);
    t.regex(variant?.unresolvable.get('broken') ?? '', reason);
    t.is(catalog.problemCount, 1);
  });
}

test('lines that are no rows are left out by their number, empty ones are nothing', (t) => {
  const fine = JSON.stringify(row('a.sif', 'a', { id: 'fine' }));
  const long = JSON.stringify(row('a.sif', 'a', { id: 'long', note: 'x'.repeat(70_000) }));
  const text = `\n${fine}\r\n{"torn\n[]\nnull\n\n${long}\n{}\n${JSON.stringify({ ...row('a.sif', 'a'), id: true })}`;
  const catalog = buildCatalog(sourcesOf(text, [listed('a.sif', 'a')]));
  t.deepEqual([...(catalog.variants.get('images')?.tasks.keys() ?? [])], ['fine']);
  t.deepEqual(
    catalog.problems.map(({ subject }) => subject),
    [3, 4, 5, 7, 8, 9].map((number) => `line ${number} of manifest.jsonl`),
  );
  t.regex(catalog.problems[0]?.reason ?? '', /^it is not JSON/);
  t.regex(catalog.problems[3]?.reason ?? '', /longer than 65536 characters/);
});

test('of two rows with one name the first is shown, and both kinds of doubles are told', (t) => {
  const rows = [
    row('a.sif', 'a', { id: 'x' }),
    row('b.sif', 'b', { id: 'x' }),
    row('a.sif', 'a', { id: 'x' }),
    row('gone.sif', 'c', { id: 'y' }),
    row('a.sif', 'a', { id: 'y' }),
  ];
  const { variants, problems } = buildCatalog(sourcesOf(rows, [listed('a.sif', 'a'), listed('b.sif', 'b')]));
  t.is(variants.get('images')?.tasks.get('x')?.path, 'a.sif');
  t.true(variants.get('images')?.unresolvable.has('y'));
  t.deepEqual(
    problems.map(({ reason }) => reason).filter((reason) => reason.includes('twice')),
    [
      'it is named twice, and the first is shown',
      'it is named twice, with one image',
      'it is named twice, and the first is shown',
    ],
  );
});

test('a manifest without one usable row is no pool', (t) => {
  for (const text of ['', '\n\n', '[]', 'nonsense']) {
    const error = t.throws(() => buildCatalog(sourcesOf(text, [listed('a.sif', 'a')])), { instanceOf: TmaxError });
    t.is(error?.errno, 'EBADMSG', text);
    t.regex(error?.message ?? '', /manifest.jsonl of org\/pool@c{40} names no usable variant/);
  }
});

test('a template of a field that no row has is told in the words of the first row', (t) => {
  const sources = sourcesOf([row('a.sif', 'a', { id: 'x' })], [listed('a.sif', 'a')]);
  const error = t.throws(() => buildCatalog(sources, parseNameTemplate('{nope}.sif')), { instanceOf: TmaxError });
  t.regex(
    error?.message ?? '',
    /no usable variant: line 1 of manifest.jsonl: it has no text or number "nope", which --name wants$/,
  );
});

test('a manifest without end is refused', (t) => {
  const error = t.throws(() => buildCatalog(sourcesOf('\n'.repeat(1_000_001), [])), { instanceOf: TmaxError });
  t.regex(error?.message ?? '', /has more than 1000000 lines/);
});

test('a manifest of the published size has the tasks and images that the map has', (t) => {
  const map = poolTaskMap();
  const images = new Map(poolImages(map).map((image) => [image.path, image]));
  const rows = Object.entries(map).flatMap(([variant, tasks]) =>
    Object.entries(tasks).map(([id, path]) => {
      const image = images.get(path);
      return { variant, task_id: id, sif_sha256: image?.sha256, sif_bytes: image?.sizeBytes, hf_path: path };
    }),
  );
  const catalog = buildCatalog(sourcesOf(rows, [...images.values()]), parseNameTemplate('{variant}/{task_id}.sif'));
  t.deepEqual(Object.fromEntries([...catalog.variants.values()].map(({ name, tasks }) => [name, tasks.size])), {
    ...POOL_TASKS,
  });
  t.is(catalog.blobs.size, POOL_IMAGES);
  t.is(catalog.problemCount, 0);
});

test('a template takes text and whole numbers of a row’s own fields, and its folders are the variant', (t) => {
  const name = (text: string, fields: Record<string, unknown>) => nameOfRow(fields, parseNameTemplate(text));
  t.deepEqual(name('{id}.sif', { id: 'a' }), { variant: 'images', task: 'a' });
  t.deepEqual(name('eval.{arch}.{id}.sif', { arch: 'x86_64', id: 7 }), { variant: 'images', task: 'eval.x86_64.7' });
  t.deepEqual(name('{split}/deep/{id}.sif', { split: 'test', id: 'b' }), { variant: 'test/deep', task: 'b' });
  t.is(name('{id}.sif', { id: 1.5 }), 'it has no text or number "id", which --name wants');
  t.is(name('{toString}.sif', {}), 'it has no text or number "toString", which --name wants');
  t.is(name('{id}.sif', { id: 'a/b' }), 'its "id" contains "/"');
  t.regex(String(name('{split}/{id}.sif', { split: '..', id: 'a' })), /refused: it is ".."/);
  t.regex(String(name('{id}.sif', { id: 'a\nb' })), /control character/);
  t.regex(String(name('{id}.sif', { id: 'x'.repeat(252) })), /longer than 255 bytes/);
});

for (const text of [
  '',
  'all.sif',
  '{id}',
  '{id}.img',
  '{id',
  'id}.sif',
  '{}.sif',
  '{a b}.sif',
  '{{id}}.sif',
  '/{id}.sif',
  '../{id}.sif',
  '{split}//{id}.sif',
  '{split}/.sif',
  'a\n{id}.sif',
  `${'x'.repeat(250)}{id}.sif`,
]) {
  test(`the template ${JSON.stringify(text).slice(0, 30)} is refused`, (t) => {
    t.is(t.throws(() => parseNameTemplate(text), { instanceOf: TmaxError })?.errno, 'EINVAL');
  });
}

const anyText = fc.oneof(fc.constantFrom('a', 'b', '..', '.', '', 'a/b', '\0', '\ud800', '__proto__'), fc.string());
const anyRow = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record(
      {
        sif_sha256: fc.oneof(fc.constantFrom('a'.repeat(64), 'b'.repeat(64)), anyText),
        sif_bytes: fc.oneof(fc.constantFrom(100, 99, 0, -1, 1e300), fc.double()),
        hf_path: fc.oneof(fc.constantFrom('a.sif', 'x/b.sif', '../a.sif'), anyText),
        hf_repo: fc.oneof(fc.constantFrom('org/other', 'org/pool', null), anyText),
        hf_revision: fc.oneof(fc.constantFrom('main', 'v1', null), anyText),
        task_id: fc.oneof(anyText, fc.integer(), fc.anything()),
        split: fc.oneof(anyText, fc.anything()),
        id: anyText,
      },
      { requiredKeys: [] },
    ),
  },
  { weight: 1, arbitrary: fc.oneof(fc.json(), anyText, fc.constant({}), fc.constant(null)) },
);
const anyTemplate = fc
  .array(fc.oneof(fc.constantFrom('{task_id}', '{split}', '{id}', '/', '-', '.', '__proto__'), fc.string()), {
    maxLength: 5,
  })
  .map((parts) => `${parts.join('')}.sif`);

test('whatever rows and templates hold, each task has a name for a folder, and an image as its listing states it', (t) => {
  const own = [listed('a.sif', 'a'), listed('x/b.sif', 'b')];
  const others = ['main', 'v1'].map((revision) => {
    return {
      repository: 'org/other',
      revision,
      commit: OTHER,
      listing: [listed('a.sif', 'b'), listed('x/b.sif', 'a')],
    };
  });
  let named = 0;
  fc.assert(
    fc.property(fc.array(fc.oneof(anyRow, anyText)), fc.option(anyTemplate), (rows, text) => {
      let naming: NameTemplate | undefined;
      try {
        naming = text === null ? undefined : parseNameTemplate(text);
      } catch (error) {
        t.true(error instanceof TmaxError && error.errno === 'EINVAL');
      }
      const known = { ...row('a.sif', 'a'), task_id: 'known', id: 'known', split: 'known' };
      const sources = sourcesOf([...rows, known], own, others);
      manifestForm.filesElsewhere(sources.index, sources.repository);
      let catalog: Catalog;
      try {
        catalog = buildCatalog(sources, naming);
      } catch (error) {
        // A template of fields that no row has.
        t.true(error instanceof TmaxError && error.errno === 'EBADMSG' && naming !== undefined);
        return;
      }
      for (const { name, tasks, unresolvable } of catalog.variants.values()) {
        t.is(pathProblem(name), undefined);
        for (const task of [...tasks.keys(), ...unresolvable.keys()]) {
          t.true(task !== '' && nameProblem(`${task}.sif`) === undefined, JSON.stringify(task));
        }
        for (const blob of tasks.values()) {
          named += 1;
          const listings = blob.repository === 'org/pool' ? [own] : others.map(({ listing }) => listing);
          const isListed = listings.flat().some(({ path, sha256, sizeBytes }) => {
            return path === blob.path && sha256 === blob.sha256 && sizeBytes === blob.sizeBytes;
          });
          t.true(isListed, JSON.stringify(blob));
          t.is(catalog.blobs.get(blob.sha256), blob, 'one address stands for each blob');
        }
      }
    }),
  );
  t.true(named > 0);
});
