import test from 'ava';
import { planVerification } from '../../src/daemon/verification-plan.js';
import { TmaxError } from '../../src/errors.js';
import { taskMapCatalog } from '../support/catalogs.js';

const COMMIT = 'c'.repeat(40);
const sha = (digit: string) => digit.repeat(64);
const catalog = taskMapCatalog({
  repository: 'o/p',
  commit: COMMIT,
  date: new Date(0),
  taskMap: JSON.stringify({ v: { one: 'a.sif', two: 'b.sif' }, w: { one: 'a.sif', gone: 'missing.sif' } }),
  listing: ['a', 'b', 'd'].map((digit) => ({ path: `${digit}.sif`, sizeBytes: 5, sha256: sha(digit) })),
});
const stored = (...digits: string[]) =>
  digits.map((digit) => ({ sha256: sha(digit), sizeBytes: 4, modifiedSeconds: 0, usedAtMs: 0 }));

test('a blob is proven once, against the size of the listing, and answers for each of its tasks', (t) => {
  const { blobs, absentTasks } = planVerification(catalog, stored('a'), {});
  t.deepEqual(blobs, [
    {
      sha256: sha('a'),
      sizeBytes: 5,
      subjects: [
        { variant: 'v', task: 'one', image: 'a.sif' },
        { variant: 'w', task: 'one', image: 'a.sif' },
      ],
    },
  ]);
  t.is(absentTasks, 1, 'v/two');
});

test('without a choice, blobs that no task names are proven too: by path where listed, else by digest', (t) => {
  const { blobs, chosen } = planVerification(catalog, stored('d', 'e'), {});
  t.deepEqual(
    blobs.map(({ sizeBytes, subjects }) => [sizeBytes, subjects[0]?.task, subjects[0]?.image]),
    [
      [5, null, 'd.sif'],
      [4, null, null],
    ],
  );
  t.is(chosen, undefined);
});

test('a choice leaves out all others, and remembers what is not on disk', (t) => {
  const byVariant = planVerification(catalog, stored('a', 'b', 'e'), { variant: 'w' });
  t.deepEqual([...(byVariant.chosen ?? [])], [sha('a')]);
  t.is(byVariant.blobs.length, 1);
  const byTask = planVerification(catalog, stored('a'), { task: 'two' });
  t.deepEqual([byTask.blobs.length, byTask.absentTasks, byTask.chosen?.has(sha('b'))], [0, 1, true]);
});

for (const selection of [{ variant: 'x' }, { task: 'x' }, { variant: 'w', task: 'two' }, { task: 'gone' }]) {
  test(`a name that stands for no image is a usage error: ${JSON.stringify(selection)}`, (t) => {
    const error = t.throws(() => planVerification(catalog, [], selection), { instanceOf: TmaxError });
    t.is(error?.errno, 'EINVAL');
    t.regex(error?.message ?? '', /"x"|"w", task "two"|"gone"/);
  });
}

test('without a catalog every blob is proven by its digest', (t) => {
  t.is(planVerification(undefined, stored('a', 'b'), {}).blobs.length, 2);
});
