import test from 'ava';
import { namedBlobs } from '../../src/daemon/named-blobs.js';
import { buildTree } from '../../src/filesystem/tree.js';
import { taskMapCatalog } from '../support/catalogs.js';

const catalog = taskMapCatalog({
  repository: 'o/p',
  commit: 'c'.repeat(40),
  date: new Date(0),
  taskMap: JSON.stringify({ v: { one: 'x/a.sif', two: 'x/b.sif' }, w: { one: 'x/c.sif', 'odd.sif': 'x/c.sif' } }),
  listing: ['a', 'b', 'c', 'd'].map((name) => ({ path: `x/${name}.sif`, sizeBytes: 5, sha256: name.repeat(64) })),
});
const tree = buildTree([{ name: '', catalog }]);
const KNOWN = 'e'.repeat(64);
const UNKNOWN = 'f'.repeat(64);
const named = (...names: string[]) => namedBlobs(tree, names, (sha256) => sha256 === KNOWN);
const digits = (...names: string[]) => named(...names).blobs.map(({ sha256 }) => sha256[0]);

test('a file is named by its path, with or without its suffix, in every view', (t) => {
  t.deepEqual(named('v/one.sif').blobs, [{ sha256: 'a'.repeat(64), name: 'v/one.sif' }]);
  t.deepEqual(digits('v/two', '/w/one.sif', 'pool/d.sif'), ['b', 'c', 'd']);
  t.deepEqual(digits('w/odd.sif'), ['c'], 'its file is odd.sif.sif');
});

test('a folder stands for all in it, the mount itself for all of them; each blob counts once', (t) => {
  t.deepEqual(digits('w'), ['c']);
  t.deepEqual(digits('v/', 'v/one.sif'), ['a', 'b']);
  t.deepEqual(digits(''), ['a', 'b', 'c', 'd']);
});

test('a task without its folder is meant wherever it is shown', (t) => {
  t.deepEqual(digits('one'), ['a', 'c']);
  t.deepEqual(digits('two.sif'), ['b']);
});

test('a digest is known by its name in the mount, or because it is on this disk', (t) => {
  t.deepEqual(named('d'.repeat(64)).blobs, [{ sha256: 'd'.repeat(64), name: 'pool/d.sif' }]);
  t.deepEqual(named(KNOWN, UNKNOWN), { blobs: [{ sha256: KNOWN, name: KNOWN }], unknown: [UNKNOWN] });
});

test('what is not there is told, and the rest counts', (t) => {
  const { blobs, unknown } = named('v/one.sif', 'v/three.sif', 'x', 'v/one.sif/deeper', 'x/one.sif', '..');
  t.is(blobs.length, 1);
  t.deepEqual(unknown, ['v/three.sif', 'x', 'v/one.sif/deeper', 'x/one.sif', '..']);
});
