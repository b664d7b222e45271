import test from 'ava';
import fc from 'fast-check';
import { buildCatalog } from '../../src/catalog/build-catalog.js';
import type { ListedFile } from '../../src/catalog/catalog.js';
import { mergeCatalogs } from '../../src/catalog/merge-catalogs.js';
import { TmaxError } from '../../src/errors.js';
import { taskMapCatalog } from '../support/catalogs.js';

const COMMIT = 'c'.repeat(40);

function listed(path: string, digit: string, sizeBytes = 100): ListedFile {
  return { path, sizeBytes, sha256: digit.repeat(64) };
}

function catalogOf(taskMap: unknown, listing: readonly ListedFile[]) {
  const text = typeof taskMap === 'string' ? taskMap : JSON.stringify(taskMap);
  return taskMapCatalog({ repository: 'org/pool', commit: COMMIT, date: new Date(0), taskMap: text, listing });
}

test('a task resolves to the blob that the listing gives its path', (t) => {
  const catalog = catalogOf({ solvable: { one: 'images/a.sif' } }, [listed('images/a.sif', 'a', 4096)]);
  t.deepEqual(catalog.variants.get('solvable')?.tasks.get('one'), {
    repository: 'org/pool',
    commit: COMMIT,
    path: 'images/a.sif',
    sha256: 'a'.repeat(64),
    sizeBytes: 4096,
  });
  t.is(catalog.problemCount, 0);
});

test('every directory that holds images is found, none is known beforehand', (t) => {
  const catalog = catalogOf({ v: { one: 'new place/deep/a.sif' } }, [
    listed('new place/deep/a.sif', 'a'),
    listed('b.sif', 'b'),
    { path: 'README.md', sizeBytes: 3, sha256: undefined },
  ]);
  t.deepEqual(catalog.directories, ['', 'new place/deep']);
  t.is(catalog.problemCount, 0, 'a file that is no image is nobody’s problem');
});

test('two tasks of one image are one blob, and so are two paths of one content', (t) => {
  const catalog = catalogOf({ v: { one: 'a.sif', two: 'a.sif', three: 'copy.sif' } }, [
    listed('a.sif', 'a'),
    listed('copy.sif', 'a'),
  ]);
  t.is(catalog.blobs.size, 1);
  t.is(catalog.variants.get('v')?.tasks.get('three')?.path, 'a.sif');
});

for (const [what, path, reason] of [
  ['that is not in the listing', 'images/gone.sif', /not in the repository/],
  ['that climbs out of the repository', '../../etc/shadow', /"\.\."/],
  ['that is absolute', '/etc/shadow', /absolute/],
  ['with a NUL', 'images/a\0.sif', /control character/],
  ['that is no string', 17, /no path/],
  ['without sha256 in the listing', 'images/plain.sif', /no sha256/],
  ['of size 0', 'images/empty.sif', /size/],
  ['with a malformed sha256', 'images/bad.sif', /sha256/],
] as const) {
  test(`a task with a path ${what} is unresolvable with its reason, and the rest works`, (t) => {
    const catalog = catalogOf({ v: { broken: path, fine: 'images/a.sif' } }, [
      listed('images/a.sif', 'a'),
      listed('images/empty.sif', 'e', 0),
      { path: 'images/plain.sif', sizeBytes: 5, sha256: undefined },
      { path: 'images/bad.sif', sizeBytes: 5, sha256: 'A'.repeat(64) },
    ]);
    const variant = catalog.variants.get('v');
    t.deepEqual([...(variant?.tasks.keys() ?? [])], ['fine']);
    t.regex(variant?.unresolvable.get('broken') ?? '', reason);
    t.true(catalog.problemCount > 0);
  });
}

for (const id of ['', 'a/b', '..\0', 'x'.repeat(252), 'line\nfeed']) {
  test(`a task called ${JSON.stringify(id).slice(0, 20)} is left out and counted`, (t) => {
    const catalog = catalogOf({ v: { [id]: 'a.sif', fine: 'a.sif' } }, [listed('a.sif', 'a')]);
    t.deepEqual([...(catalog.variants.get('v')?.tasks.keys() ?? [])], ['fine']);
    t.is(catalog.problemCount, 1);
  });
}

for (const name of ['..', 'a/b', '', 'nul\0']) {
  test(`a variant called ${JSON.stringify(name)} is left out and counted`, (t) => {
    const catalog = catalogOf({ [name]: { one: 'a.sif' }, fine: { one: 'a.sif' } }, [listed('a.sif', 'a')]);
    t.deepEqual([...catalog.variants.keys()], ['fine']);
    t.is(catalog.problemCount, 1);
  });
}

test('names that mean something to JavaScript are names like any other', (t) => {
  const map = '{"__proto__":{"constructor":"a.sif","__proto__":"a.sif"},"toString":{"valueOf":"a.sif"}}';
  const catalog = catalogOf(map, [listed('a.sif', 'a')]);
  t.deepEqual([...catalog.variants.keys()], ['__proto__', 'toString']);
  t.deepEqual([...(catalog.variants.get('__proto__')?.tasks.keys() ?? [])], ['constructor', '__proto__']);
});

test('a path that is listed with one sha256 and two sizes is not believed the second time', (t) => {
  const catalog = catalogOf({ v: { one: 'a.sif', two: 'b.sif' } }, [
    listed('a.sif', 'a', 10),
    listed('b.sif', 'a', 11),
  ]);
  t.regex(catalog.variants.get('v')?.unresolvable.get('two') ?? '', /same sha256 and another size/);
});

for (const map of ['', 'null', '[]', '"x"', '{', '{}', '{"v":[]}', '{"v":7}']) {
  test(`the task map ${map || '(empty)'} is refused with EBADMSG`, (t) => {
    const error = t.throws(() => catalogOf(map, [listed('a.sif', 'a')]), { instanceOf: TmaxError });
    t.is(error?.errno, 'EBADMSG');
  });
}

test('whatever the two files hold, a catalog has only tasks with a size, a sha256 and a name for a directory', (t) => {
  const path = fc.oneof(fc.constantFrom('a.sif', 'b/c.sif'), fc.string());
  const file = fc.record({
    path,
    sizeBytes: fc.oneof(fc.integer(), fc.double()),
    sha256: fc.oneof(fc.constantFrom('a'.repeat(64), 'b'.repeat(64)), fc.string(), fc.constant(undefined)),
  });
  const map = fc.dictionary(
    fc.string(),
    fc.oneof(fc.dictionary(fc.string(), fc.oneof(path, fc.anything())), fc.anything()),
  );
  fc.assert(
    fc.property(map, fc.array(file), (taskMap, listing) => {
      const text = JSON.stringify({ ...taskMap, known: {} });
      const catalog = catalogOf(text, listing);
      for (const variant of catalog.variants.values()) {
        for (const [id, blob] of variant.tasks) {
          t.true(/^[0-9a-f]{64}$/.test(blob.sha256) && blob.sizeBytes > 0 && Number.isSafeInteger(blob.sizeBytes));
          t.false(/[/\0]/.test(id));
        }
      }
    }),
  );
});

test('as its images lie, a folder is a variant under its whole path, and a file without a name is left out', (t) => {
  const listing = [listed('a.sif', 'a'), listed('x/y/b.sif', 'b'), listed('x/c.sif', 'c'), listed('x/.sif', 'd')];
  const place = { repository: 'org/pool', commit: COMMIT, date: new Date(0), index: '', others: [] };
  const catalog = buildCatalog({ ...place, kind: 'listing', listing: [...listing, listed('README', 'e')] });
  t.deepEqual(
    [...catalog.variants.values()].map(({ name, tasks }) => [name, ...tasks.keys()]),
    [
      ['images', 'a'],
      ['x/y', 'b'],
      ['x', 'c'],
    ],
  );
  t.deepEqual(catalog.problems, [{ subject: 'listing entry "x/.sif"', reason: 'its name stands for no task' }]);
  t.is(catalog.kind, 'listing');
});

test('several catalogs in one have the names of their pools, and each blob once', (t) => {
  const one = catalogOf({ v: { a: 'a.sif' } }, [listed('a.sif', 'a')]);
  const two = catalogOf({ v: { a: 'a.sif', b: 'b.sif', gone: 'x.sif' } }, [listed('a.sif', 'a'), listed('b.sif', 'b')]);
  const merged = mergeCatalogs([
    { name: 'one', catalog: one },
    { name: 'two', catalog: two },
  ]);
  t.deepEqual([...merged.variants.keys()], ['one/v', 'two/v']);
  t.is(merged.variants.get('two/v')?.name, 'two/v');
  t.is(merged.blobs.size, 2);
  t.deepEqual(merged.problems, [{ subject: 'two: task "gone" of v', reason: '"x.sif" is not in the repository' }]);
  t.is(mergeCatalogs([{ name: '', catalog: one }]), one, 'one alone is what it is');
});

test('of two pools that state one image with two sizes the first is shown, and that is told', (t) => {
  const [small, large] = [50, 60].map((size) => catalogOf({ v: { a: 'a.sif' } }, [listed('a.sif', 'a', size)]));
  if (small === undefined || large === undefined) return t.fail();
  const merged = mergeCatalogs([
    { name: 'one', catalog: small },
    { name: 'two', catalog: large },
  ]);
  t.is(merged.blobs.get('a'.repeat(64))?.sizeBytes, 50);
  t.is(merged.problemCount, 1);
  t.regex(merged.problems[0]?.reason ?? '', /same sha256 with another size/);
});
