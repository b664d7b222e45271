import test from 'ava';
import fc from 'fast-check';
import { FetchQueue, type QueuedFetch, type RunOutcome } from '../../src/blobs/fetch-queue.js';

/** A fetch under the test's control. */
class TestFetch implements QueuedFetch {
  mayGiveWay = true;
  runs = 0;
  #end: ((outcome: RunOutcome) => void) | undefined;

  constructor(
    readonly name: string,
    public waiterCount: number,
    readonly log: string[] = [],
  ) {}

  get isRunning(): boolean {
    return this.#end !== undefined;
  }

  run(signal: AbortSignal): Promise<RunOutcome> {
    this.runs += 1;
    this.log.push(this.name);
    return new Promise((resolve) => {
      this.#end = resolve;
      signal.addEventListener('abort', () => this.#settle({ kind: 'later', afterMs: 0 }));
    });
  }

  async finish(): Promise<void> {
    this.#settle({ kind: 'over' });
    await turn();
  }

  async comeBackIn(afterMs: number): Promise<void> {
    this.#settle({ kind: 'later', afterMs });
    await turn();
  }

  #settle(outcome: RunOutcome): void {
    this.#end?.(outcome);
    this.#end = undefined;
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('what most opens wait for goes first, then what came first, then what nobody waits for', async (t) => {
  const log: string[] = [];
  const queue = new FetchQueue(1);
  const first = new TestFetch('first', 1, log);
  const others = [
    ['nobody', 0],
    ['one', 1],
    ['one more', 1],
    ['three', 3],
  ].map(([name, waiters]) => new TestFetch(String(name), Number(waiters), log));
  for (const fetch of [first, ...others]) queue.add(fetch);
  t.deepEqual(log, ['first']);
  await first.finish();
  for (let running = others.find(({ isRunning }) => isRunning); running; running = others.find((f) => f.isRunning)) {
    await running.finish();
  }
  t.deepEqual(log, ['first', 'three', 'one', 'one more', 'nobody']);
  await queue.idle();
});

test('a fetch that has to wait for another process takes no place meanwhile, and comes back', async (t) => {
  const queue = new FetchQueue(1);
  const [locked, free] = [new TestFetch('locked', 9), new TestFetch('free', 1)];
  queue.add(locked);
  queue.add(free);
  await locked.comeBackIn(1);
  t.true(free.isRunning);
  await free.finish();
  while (!locked.isRunning) await turn();
  await locked.finish();
  await queue.idle();
  t.is(locked.runs, 2);
});

test('waiters are counted when a place is free, not when a fetch came', async (t) => {
  const log: string[] = [];
  const queue = new FetchQueue(1);
  const [running, early, late] = [1, 1, 1].map((count, index) => new TestFetch(String(index), count, log));
  for (const fetch of [running, early, late]) if (fetch !== undefined) queue.add(fetch);
  if (late !== undefined) late.waiterCount = 5;
  await running?.finish();
  t.deepEqual(log, ['0', '2']);
});

test('a fetch that nobody waits for gives way at once, and goes on when a place is free', async (t) => {
  const queue = new FetchQueue(2);
  const [older, younger] = [new TestFetch('older', 0), new TestFetch('younger', 0)];
  queue.add(older);
  queue.add(younger);
  const wanted = new TestFetch('wanted', 1);
  queue.add(wanted);
  t.true(wanted.isRunning, 'in the same turn');
  t.true(older.isRunning);
  t.false(younger.isRunning, 'the one that began last gave way');
  await wanted.finish();
  t.is(younger.runs, 2);
  t.true(younger.isRunning);
});

test('what is being proven does not give way, and does not keep others waiting', (t) => {
  const queue = new FetchQueue(1);
  const proven = new TestFetch('proven', 0);
  proven.mayGiveWay = false;
  queue.add(proven);
  const wanted = new TestFetch('wanted', 1);
  queue.add(wanted);
  t.true(proven.isRunning);
  t.true(wanted.isRunning);
});

test('a fetch that gets a waiter while it is queued no longer waits behind those without', async (t) => {
  const queue = new FetchQueue(1);
  const [running, queued] = [new TestFetch('running', 0), new TestFetch('queued', 0)];
  queue.add(running);
  queue.add(queued);
  queued.waiterCount = 1;
  queue.dispatch();
  t.true(queued.isRunning);
  t.false(running.isRunning);
});

test('a queued fetch that is cancelled never runs, and a running one is called off', async (t) => {
  const queue = new FetchQueue(1);
  const [running, queued] = [new TestFetch('running', 1), new TestFetch('queued', 1)];
  queue.add(running);
  queue.add(queued);
  t.true(queue.cancel(queued));
  t.false(queue.cancel(running));
  t.false(running.isRunning);
  await turn();
  t.is(queued.runs, 0);
});

test('a queue is idle once the last fetch that waits for another process is cancelled', async (t) => {
  const queue = new FetchQueue(1);
  const locked = new TestFetch('locked', 0);
  queue.add(locked);
  await locked.comeBackIn(60_000);
  const idle = queue.idle().then(() => 'idle');
  t.true(queue.cancel(locked));
  t.is(await Promise.race([idle, turn()]), 'idle');
});

test('whatever comes, ends and is waited for: no fetch is lost, and none that is waited for waits for one that is not', async (t) => {
  const step = fc.record({ what: fc.constantFrom('add', 'finish', 'want'), which: fc.nat(20), waiters: fc.nat(2) });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.integer({ min: 1, max: 3 }), async (steps, places) => {
      const queue = new FetchQueue(places);
      const fetches: TestFetch[] = [];
      const done = new Set<TestFetch>();
      for (const { what, which, waiters } of steps) {
        const chosen = fetches[which % Math.max(1, fetches.length)];
        if (what === 'add') {
          const fetch = new TestFetch(String(fetches.length), waiters);
          fetches.push(fetch);
          queue.add(fetch);
        } else if (what === 'finish' && chosen?.isRunning) {
          done.add(chosen);
          await chosen.finish();
        } else if (what === 'want' && chosen !== undefined) {
          chosen.waiterCount += 1;
          queue.dispatch();
        }
        await turn();
        const pending = fetches.filter((fetch) => !done.has(fetch));
        const running = pending.filter(({ isRunning }) => isRunning);
        t.is(running.length, Math.min(places, pending.length));
        const idleWanted = pending.filter((fetch) => !fetch.isRunning && fetch.waiterCount > 0);
        if (idleWanted.length > 0) t.true(running.every(({ waiterCount }) => waiterCount > 0));
      }
      for (let left = fetches.filter(({ isRunning }) => isRunning); left.length > 0; ) {
        for (const fetch of left) await fetch.finish();
        left = fetches.filter(({ isRunning }) => isRunning);
      }
      await queue.idle();
    }),
    { numRuns: 100 },
  );
});
