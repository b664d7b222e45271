import test from 'ava';
import { type Contestant, raceIfSilent } from '../../src/sources/race.js';

const SILENCE_MS = 20;

/** Starts a race whose contestants are steered by the test. */
function start(silenceMs = SILENCE_MS, signal = new AbortController().signal) {
  const runs: { contestant: Contestant; end: () => void; fail: (error: Error) => void }[] = [];
  const waiting: (() => void)[] = [];
  const result = raceIfSilent(
    (contestant) =>
      new Promise<void>((end, fail) => {
        runs.push({ contestant, end, fail });
        contestant.sent();
        for (const wake of waiting.splice(0)) wake();
      }),
    { silenceMs, signal, onSecond: () => {} },
  );
  result.catch(() => undefined);
  const second = async () => {
    if (runs.length < 2) await new Promise<void>((resolve) => waiting.push(resolve));
    const [one, two] = runs;
    if (one === undefined || two === undefined) throw new Error('two should run');
    return { one, two };
  };
  return { runs, result, second };
}

test('one that speaks is alone, and its end is the end', async (t) => {
  const { runs, result } = start(3_600_000);
  runs[0]?.contestant.heard();
  runs[0]?.end();
  await result;
  t.is(runs.length, 1);
});

test('a silent one gets company, and whoever speaks first calls the other off', async (t) => {
  for (const winner of ['one', 'two'] as const) {
    const { result, second } = start();
    const both = await second();
    const loser = winner === 'one' ? 'two' : 'one';
    both[winner].contestant.heard();
    t.true(both[loser].contestant.signal.aborted);
    t.false(both[winner].contestant.signal.aborted);
    t.throws(() => both[loser].contestant.heard(), { message: /called off/ });
    both[loser].fail(new Error('called off'));
    both[winner].end();
    await t.notThrowsAsync(result);
  }
});

test('one that ends calls the other off, so that what comes late is not taken twice', async (t) => {
  for (const winner of ['one', 'two'] as const) {
    const { result, second } = start();
    const both = await second();
    const { contestant } = both[winner === 'one' ? 'two' : 'one'];
    both[winner].end();
    await result;
    t.true(contestant.signal.aborted);
    t.throws(() => contestant.heard(), { message: /called off/ });
  }
});

test('one that fails leaves the other running; the last failure counts', async (t) => {
  const { result, second } = start();
  const { one, two } = await second();
  one.fail(new Error('first'));
  two.fail(new Error('last'));
  await t.throwsAsync(result, { message: 'last' });
});

test('a receiver that needs time is no silence', async (t) => {
  const { runs, result } = start();
  let release = () => {};
  runs[0]?.contestant.hold(
    new Promise<void>((resolve) => {
      release = resolve;
    }),
  );
  await new Promise((resolve) => setTimeout(resolve, 3 * SILENCE_MS));
  t.is(runs.length, 1);
  release();
  runs[0]?.end();
  await result;
});
