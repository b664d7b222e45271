import test from 'ava';
import { wantedBlobs } from '../../src/daemon/wanted-blobs.js';
import { taskMapCatalog } from '../support/catalogs.js';

const catalog = taskMapCatalog({
  repository: 'o/p',
  commit: 'c'.repeat(40),
  date: new Date(0),
  taskMap: JSON.stringify({
    v: { one: 'a.sif', two: 'b.sif', gone: 'missing.sif' },
    w: { one: 'a.sif', three: 'c.sif', also: 'c.sif' },
  }),
  listing: ['a', 'b', 'c'].map((name) => ({ path: `${name}.sif`, sizeBytes: 5, sha256: name.repeat(64) })),
});
const paths = (selection: Parameters<typeof wantedBlobs>[1]) =>
  [...wantedBlobs(catalog, selection).blobs.values()].map(({ address }) => address.path);

test('a variant is all its tasks, each blob once; what has no image is named', (t) => {
  t.deepEqual(paths({ variant: 'w' }), ['a.sif', 'c.sif']);
  t.deepEqual(paths({ variant: 'v' }), ['a.sif', 'b.sif']);
  t.deepEqual(wantedBlobs(catalog, { variant: 'v' }).unknown, [
    { name: 'v/gone', reason: '"missing.sif" is not in the repository' },
  ]);
});

test('a task may be written as its id, with its variant, or as its path in the mount', (t) => {
  t.deepEqual(paths({ tasks: ['two'] }), ['b.sif']);
  t.deepEqual(paths({ tasks: ['w/three', '/tmax/w/also.sif', 'v/one.sif', 'one'] }), ['c.sif', 'a.sif']);
  t.deepEqual(paths({ variant: 'v', tasks: ['one', 'two'] }), ['a.sif', 'b.sif']);
});

test('what is not in the pool is named, and the rest is fetched', (t) => {
  const { blobs, unknown } = wantedBlobs(catalog, { tasks: ['one', 'nonsense', 'v/three'] });
  t.is(blobs.size, 1);
  t.deepEqual(
    unknown.map(({ name }) => name),
    ['nonsense', 'v/three'],
  );
});

test('nothing chosen, or a variant that is not there, is wrong usage', (t) => {
  t.throws(() => wantedBlobs(catalog, {}), { message: /nothing is chosen/ });
  t.throws(() => wantedBlobs(catalog, { variant: 'x' }), { message: /no variant "x", only v, w/ });
});
