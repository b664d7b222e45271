import test, { type ExecutionContext } from 'ava';
import { type AbandonReason, MAX_EARLY_INTERRUPTS, WaitingOpens } from '../../src/fuse/kernel/waiting-opens.js';

interface Harness {
  readonly waits: WaitingOpens;
  readonly stopping: Set<number>;
  readonly abandoned: (readonly [bigint, AbandonReason])[];
  begin(unique: bigint, pid: number): AbortSignal;
}

function harness(t: ExecutionContext): Harness {
  const stopping = new Set<number>();
  const abandoned: (readonly [bigint, AbandonReason])[] = [];
  const waits = new WaitingOpens((tid) => stopping.has(tid));
  t.teardown(() => waits.abandonAll());
  return {
    waits,
    stopping,
    abandoned,
    begin(unique, pid) {
      const controller = new AbortController();
      waits.begin(unique, { uid: 0, gid: 0, pid }, controller, (reason) => void abandoned.push([unique, reason]));
      return controller.signal;
    },
  };
}

test('an interrupt without a reason to stop changes nothing, and a reason that comes later is noticed', async (t) => {
  const { waits, stopping, abandoned, begin } = harness(t);
  const signal = begin(1n, 100);
  waits.interrupt(1n);
  t.deepEqual(abandoned, []);
  const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve));
  stopping.add(100);
  await aborted;
  t.deepEqual(abandoned, [[1n, 'interrupted']]);
  t.is(waits.count, 0);
});

test('a reason to stop without an interrupt is not looked for', (t) => {
  const { stopping, abandoned, begin } = harness(t);
  stopping.add(100);
  begin(1n, 100);
  t.deepEqual(abandoned, []);
});

test('only the interrupted one of several opens is abandoned', (t) => {
  const { waits, stopping, abandoned, begin } = harness(t);
  begin(1n, 100);
  const other = begin(2n, 100);
  stopping.add(100);
  waits.interrupt(1n);
  t.deepEqual(abandoned, [[1n, 'interrupted']]);
  t.false(other.aborted);
});

test('an open that has ended is not abandoned any more', (t) => {
  const { waits, stopping, abandoned, begin } = harness(t);
  begin(1n, 100);
  t.true(waits.end(1n));
  t.false(waits.end(1n));
  stopping.add(100);
  waits.interrupt(1n);
  waits.abandonAll();
  t.deepEqual(abandoned, []);
});

test('interrupts of unknown requests are remembered up to a bound, the newest longest', (t) => {
  const { waits, stopping, abandoned, begin } = harness(t);
  stopping.add(100);
  for (let unique = 1; unique <= MAX_EARLY_INTERRUPTS + 1; unique += 1) waits.interrupt(BigInt(unique));
  begin(1n, 100);
  t.deepEqual(abandoned, []);
  begin(2n, 100);
  t.deepEqual(abandoned, [[2n, 'interrupted']]);
});

test('when the mount goes away, every open is abandoned and aborted', (t) => {
  const { waits, abandoned, begin } = harness(t);
  const signals = [begin(1n, 100), begin(2n, 200)];
  waits.abandonAll();
  t.deepEqual(abandoned, [
    [1n, 'disconnected'],
    [2n, 'disconnected'],
  ]);
  t.true(signals.every(({ aborted }) => aborted));
});
