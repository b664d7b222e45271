import test from 'ava';
import fc from 'fast-check';
import { CountTally, HistogramTally, RecentValues } from '../../../src/daemon/metrics/tallies.js';

test('a count has a series for each combination of labels', (t) => {
  const tally = new CountTally();
  tally.add({ source: 'hub', outcome: 'a' });
  tally.add({ source: 'hub', outcome: 'a' }, 2);
  tally.add({ source: 'hub', outcome: 'b' });
  t.deepEqual(
    [...tally.series],
    [
      { labels: { source: 'hub', outcome: 'a' }, value: 3 },
      { labels: { source: 'hub', outcome: 'b' }, value: 1 },
    ],
  );
  t.is(tally.total, 4);
});

test('labels that nobody bounds use up no memory', (t) => {
  const tally = new CountTally();
  for (let number = 0; number < 10_000; number += 1) tally.add({ name: String(number) });
  t.true([...tally.series].length < 1000);
});

test('every value is in the first bucket whose bound is not below it', (t) => {
  const bounds = [0.1, 1, 10];
  fc.assert(
    fc.property(
      fc.array(fc.oneof(fc.constantFrom(...bounds), fc.double({ min: 0, max: 20, noNaN: true }))),
      (values) => {
        const tally = new HistogramTally(bounds);
        tally.prepare({});
        for (const value of values) tally.observe({}, value);
        const [series] = [...tally.series];
        const edges = [...bounds, Number.POSITIVE_INFINITY];
        const upTo = (bound: number) => values.filter((value) => value <= bound).length;
        const expected = edges.map((bound, index) => upTo(bound) - (index === 0 ? 0 : upTo(edges[index - 1] ?? 0)));
        t.deepEqual(series?.counts, expected);
        t.true(Math.abs((series?.sum ?? Number.NaN) - values.reduce((sum, value) => sum + value, 0)) < 1e-6);
      },
    ),
  );
});

test('percentiles are of the latest values', (t) => {
  const recent = new RecentValues();
  t.deepEqual(recent.percentiles(0.5, 0.99), [null, null]);
  for (let value = 1; value <= 100; value += 1) recent.add(value);
  t.deepEqual(recent.percentiles(0.5, 0.99, 1), [50, 99, 100]);
  for (let count = 0; count < 5000; count += 1) recent.add(7);
  t.deepEqual(recent.percentiles(0, 0.5, 1), [7, 7, 7]);
});
