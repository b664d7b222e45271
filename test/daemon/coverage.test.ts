import test from 'ava';
import type { BlobAddress, Catalog } from '../../src/catalog/catalog.js';
import { countCoverage } from '../../src/daemon/coverage.js';

function blob(path: string, digit: string): BlobAddress {
  return { repository: 'org/pool', commit: '1'.repeat(40), path, sha256: digit.repeat(64), sizeBytes: 10 };
}

const [a, b, c] = [blob('x/a.sif', 'a'), blob('y/b.sif', 'b'), blob('z/c.sif', 'c')];

function variantOf(name: string, tasks: Record<string, BlobAddress>, unresolvable: Record<string, string> = {}) {
  return { name, tasks: new Map(Object.entries(tasks)), unresolvable: new Map(Object.entries(unresolvable)) };
}

const CATALOG: Catalog = {
  repository: 'org/pool',
  commit: '1'.repeat(40),
  date: new Date(0),
  variants: new Map([
    ['v', variantOf('v', { one: a, two: b })],
    ['w', variantOf('w', { one: a })],
  ]),
  blobs: new Map([a, b, c].map((one) => [one.sha256, one])),
  images: new Map(),
  directories: ['x', 'y', 'z'],
  problems: [],
  problemCount: 0,
};
const nowhere = () => ({ isReady: false, isQuarantined: false });

test('all tasks that can be opened are complete coverage', (t) => {
  const coverage = countCoverage(CATALOG, nowhere, new Map());
  t.true(coverage.isComplete);
  t.like(coverage, { blobs: 3, bytes: 30, directories: ['x', 'y', 'z'] });
});

test('a task whose image is refused as it was published is named, and coverage is not complete', (t) => {
  const coverage = countCoverage(CATALOG, nowhere, new Map([[b.sha256, 'no squashfs in it']]));
  t.false(coverage.isComplete);
  t.deepEqual(
    coverage.variants.map(({ refused }) => refused),
    [[{ task: 'two', reason: 'no squashfs in it' }], []],
  );
  t.true(countCoverage(CATALOG, nowhere, new Map([[b.sha256, 'broken']]), 'w').isComplete, 'w does not use it');
});

test('totals are those of the variant that is asked for', (t) => {
  t.like(countCoverage(CATALOG, nowhere, new Map(), 'w'), { blobs: 1, bytes: 10, directories: ['x'] });
});
