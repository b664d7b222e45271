import test from 'ava';
import { areFixed, deviceOf, type PoolWords, poolsOfDevice, readPools } from '../../src/daemon/pool-choices.js';
import { TmaxError } from '../../src/errors.js';

const read = (words: Partial<PoolWords>) => readPools({ revision: 'main', ...words });

test('without a word it is the published pool, as the whole mount', (t) => {
  t.deepEqual(read({}), [
    { name: '', repository: 'wAI-org/tmax-image-pool', revision: 'main', catalog: 'auto', naming: undefined },
  ]);
  t.like(read({ repo: 'o/p', revision: 'v1', catalog: ['listing'] })[0], {
    repository: 'o/p',
    revision: 'v1',
    catalog: 'listing',
  });
});

test('several pools have their own names, revisions, kinds and templates, or those of all', (t) => {
  const pools = read({
    pool: ['one=o/p', 'two=o/q@v1', 'three=o/p@refs/pr/1'],
    revision: 'dev',
    catalog: ['manifest', 'three=task-map'],
    name: ['two={id}.sif'],
  });
  t.deepEqual(
    pools.map(({ name, repository, revision, catalog, naming }) => [name, repository, revision, catalog, naming?.text]),
    [
      ['one', 'o/p', 'dev', 'manifest', undefined],
      ['two', 'o/q', 'v1', 'manifest', '{id}.sif'],
      ['three', 'o/p', 'refs/pr/1', 'task-map', undefined],
    ],
  );
  t.is(read({ pool: ['a=o/p'], name: ['x={id}.sif'] })[0]?.naming?.text, 'x={id}.sif', 'no pool is called x');
});

test('the device names all of it, and can be read back', (t) => {
  t.is(deviceOf(read({ repo: 'o/p' })), 'o/p');
  t.deepEqual(poolsOfDevice('o/p'), []);
  const words = ['one=o/p', 'two=o/q@v1+2', 'three.x=o/r'];
  const device = deviceOf(read({ pool: words }));
  t.is(device, 'one=o/p+two=o/q@v1+2+three.x=o/r');
  t.deepEqual(poolsOfDevice(device), words);
});

test('only commits are fixed', (t) => {
  t.true(areFixed(read({ revision: 'a'.repeat(40) })));
  t.false(areFixed(read({ pool: [`one=o/p@${'a'.repeat(40)}`, 'two=o/p'] })));
});

for (const [words, reason] of [
  [{ repo: 'o/p', pool: ['a=o/p'] }, /--repo and --pool exclude each other/],
  [{ repo: 'nothing' }, /--repo takes owner\/name/],
  [{ repo: 'o/p..q' }, /--repo takes owner\/name/],
  [{ pool: ['a=o/p@v1..v2'] }, /--revision takes a branch/],
  [{ revision: 'a b' }, /--revision takes a branch/],
  [{ pool: ['o/p'] }, /--pool takes name=owner\/repo/],
  [{ pool: ['=o/p'] }, /--pool takes/],
  [{ pool: ['a/b=o/p'] }, /--pool takes/],
  [{ pool: ['..=o/p'] }, /--pool takes/],
  [{ pool: ['a=o/p@'] }, /--pool takes/],
  [{ pool: ['a=o/p@x y'] }, /--revision takes/],
  [{ pool: ['pool=o/p'] }, /can't be called "pool"/],
  [{ pool: ['a=o/p', 'a=o/q'] }, /two pools the name "a"/],
  [{ pool: Array.from({ length: 17 }, (_, number) => `p${number}=o/p`) }, /17 times, at most 16/],
  [{ catalog: ['maps'] }, /--catalog takes one of auto, task-map, manifest, listing/],
  [{ catalog: ['listing', 'manifest'] }, /--catalog is given twice for the pool/],
  [{ pool: ['a=o/p'], catalog: ['b=listing'] }, /--catalog takes one of/],
  [{ pool: ['a=o/p'], name: ['a={id}.sif', 'a={x}.sif'] }, /--name is given twice for the pool "a"/],
  [{ name: ['{id}'] }, /--name takes a template .*does not end in .sif/],
  [{ catalog: ['task-map'], name: ['{id}.sif'] }, /--name takes fields from the rows of a manifest/],
] as const) {
  test(`${JSON.stringify(words).slice(0, 60)} is refused`, (t) => {
    const error = t.throws(() => read(words), { instanceOf: TmaxError });
    t.is(error?.errno, 'EINVAL');
    t.regex(error?.message ?? '', reason);
  });
}
