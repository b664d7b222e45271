import test from 'ava';
import type { BlobAddress, Catalog } from '../../src/catalog/catalog.js';
import {
  type Coverage,
  chooseTasks,
  countPool,
  countTasks,
  type KnownRefusal,
  listTasks,
} from '../../src/daemon/coverage.js';

function blob(path: string, digit: string): BlobAddress {
  return { repository: 'org/pool', commit: '1'.repeat(40), path, sha256: digit.repeat(64), sizeBytes: 10 };
}

const [a, b, c] = [blob('x/a.sif', 'a'), blob('y/b.sif', 'b'), blob('z/c.sif', 'c')];

function variantOf(name: string, tasks: Record<string, BlobAddress>, unresolvable: Record<string, string> = {}) {
  return { name, tasks: new Map(Object.entries(tasks)), unresolvable: new Map(Object.entries(unresolvable)) };
}

const CATALOG: Catalog & Pick<Coverage, 'pools'> = {
  pools: [],
  repository: 'org/pool',
  commit: '1'.repeat(40),
  date: new Date(0),
  kind: 'task-map',
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
const NONE = new Map<string, KnownRefusal>();

function refusalOf(blob: BlobAddress, reason: string, isFinal = true): ReadonlyMap<string, KnownRefusal> {
  return new Map([[blob.sha256, { reason, isFinal }]]);
}

test('all tasks that can be opened are complete coverage', (t) => {
  const coverage = countPool(CATALOG, listTasks(CATALOG, nowhere, NONE));
  t.true(coverage.isComplete);
  t.like(coverage, { blobs: 3, bytes: 30, directories: ['x', 'y', 'z'], unknown: [] });
  t.deepEqual(
    coverage.variants.map(({ variant, tasks, blobs, bytes }) => [variant, tasks, blobs, bytes]),
    [
      ['v', 2, 2, 20],
      ['w', 1, 1, 10],
    ],
  );
});

test('a task whose image is refused as it was published is named, and coverage is not complete', (t) => {
  const tasks = listTasks(CATALOG, nowhere, refusalOf(b, 'no squashfs in it'));
  const coverage = countPool(CATALOG, tasks);
  t.false(coverage.isComplete);
  t.deepEqual(
    coverage.variants.map(({ refused }) => refused),
    [[{ task: 'two', reason: 'no squashfs in it' }], []],
  );
  t.true(countTasks(CATALOG, listTasks(CATALOG, nowhere, refusalOf(b, 'broken'), 'w')).isComplete, 'w does not use it');
});

test('an image that is refused for now is in quarantine, and can still be hoped for', (t) => {
  const onDisk = () => ({ isReady: false, isQuarantined: true });
  const tasks = listTasks(CATALOG, onDisk, refusalOf(a, 'another digest', false), 'w');
  t.like(tasks[0], { task: 'one', state: 'quarantined', reason: 'another digest' });
  t.like(countTasks(CATALOG, tasks), { isComplete: true });
  t.is(countTasks(CATALOG, tasks).variants[0]?.quarantinedBlobs, 1);
});

test('a task without an image is named with the reason, and coverage is not complete', (t) => {
  const variants = new Map([['v', variantOf('v', { one: a }, { lost: 'x/lost.sif is not in the repository' })]]);
  const tasks = listTasks({ variants }, nowhere, NONE);
  const { isComplete, variants: counted } = countTasks(CATALOG, tasks);
  t.false(isComplete);
  const unresolvable = [{ task: 'lost', reason: 'x/lost.sif is not in the repository' }];
  t.like(counted[0], { tasks: 2, resolvable: 1, unresolvable, blobs: 1 });
});

test('what is on disk and proven is counted by distinct blobs', (t) => {
  const onDisk = (sha256: string) => ({ isReady: sha256 === a.sha256, isQuarantined: false });
  const variants = new Map([['v', variantOf('v', { one: a, same: a, two: b })]]);
  const [counted] = countTasks(CATALOG, listTasks({ variants }, onDisk, NONE)).variants;
  t.like(counted, { tasks: 3, blobs: 2, bytes: 20, readyBlobs: 1, readyBytes: 10 });
});

test('totals are those of the variant that is asked for', (t) => {
  t.like(countTasks(CATALOG, listTasks(CATALOG, nowhere, NONE, 'w')), { blobs: 1, bytes: 10, directories: ['x'] });
});

test('names left out of the pool count where all of it is asked for, a variant without tasks always', (t) => {
  const catalog = { ...CATALOG, variants: new Map([['empty', variantOf('empty', {})]]), problemCount: 1 };
  t.false(countPool(catalog, []).isComplete);
  t.like(countTasks(catalog, [], ['empty']), { isComplete: true });
  t.is(countTasks(catalog, [], ['empty']).variants[0]?.tasks, 0);
});

test('tasks are chosen by name, by variant and name, and by path, each once', (t) => {
  const all = listTasks(CATALOG, nowhere, NONE);
  const chosen = (...names: string[]) => chooseTasks(all, names).map(({ variant, task }) => `${variant}/${task}`);
  t.deepEqual(chosen('one'), ['v/one', 'w/one']);
  t.deepEqual(chosen('v/one', '/tmax/v/one.sif', 'v/one.sif'), ['v/one']);
  t.deepEqual(chosen('/tmax/v/two.sif'), ['v/two']);
});

test('a name that the pool does not have makes coverage incomplete, and is told', (t) => {
  const chosen = chooseTasks(listTasks(CATALOG, nowhere, NONE), ['v/one', 'w/two', 'nothing']);
  const coverage = countTasks(CATALOG, chosen);
  t.false(coverage.isComplete);
  t.deepEqual(coverage.unknown, ['w/two', 'nothing']);
  t.deepEqual(
    coverage.variants.map(({ variant, tasks }) => [variant, tasks]),
    [['v', 1]],
  );
});
