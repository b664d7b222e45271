import test from 'ava';
import { type ActivityParts, describeActivity } from '../../src/daemon/activity.js';

const GIB = 2 ** 30;

function variant(name: string, tasks: number): [string, ActivityVariant] {
  const names = Array.from({ length: tasks }, (_, index) => [`t${index}`, `${index}.sif`] as const);
  return [name, { name, tasks: new Map(names) } as unknown as ActivityVariant];
}
type ActivityVariant =
  ActivityParts['catalog']['variants'] extends ReadonlyMap<string, infer Variant> ? Variant : never;

function activity(changes: Partial<ActivityParts> = {}, busy: Partial<Record<'flights' | 'quarantine', number>> = {}) {
  const many = (count = 0) => new Array(count).fill({});
  return describeActivity({
    catalog: { variants: new Map([variant('solvable', 6968)]) },
    follow: { failure: null },
    blobs: {
      use: { limitBytes: 200 * GIB, usedBytes: 41 * GIB, reservedBytes: 0, idleBlobs: 0, leasedBlobs: 0 },
      flights: many(busy.flights),
      quarantine: many(busy.quarantine),
    } as ActivityParts['blobs'],
    waitingOpens: 0,
    ...changes,
  });
}

test('one line says what is shown, what is fetched and how full the cache is', (t) => {
  t.is(activity({}, { flights: 3 }), 'solvable: 6,968 tasks · 3 fetches · 41.0 GiB of 200 GiB');
});

test('who waits, what is refused and a commit that may be old are said only where there are any', (t) => {
  t.is(
    activity(
      { waitingOpens: 32, follow: { failure: { at: '', errno: 'EHOSTUNREACH', message: '' } } },
      { flights: 1, quarantine: 1 },
    ),
    'solvable: 6,968 tasks · 1 fetch, 32 opens waiting · 41.0 GiB of 200 GiB · 1 image refused · the commit may be old (EHOSTUNREACH)',
  );
});

test('of many variants the first are named', (t) => {
  const variants = new Map(['a', 'b', 'c', 'd', 'e', 'f'].map((name) => variant(name, 1)));
  t.regex(activity({ catalog: { variants } }), /^a: 1 task, b: 1 task, c: 1 task, d: 1 task, 2 more · /);
});
