import test from 'ava';
import { startLongTimer } from '../src/long-timer.js';

test('a timer longer than one of Node’s can be is made of several, and calls back once at its end', async (t) => {
  const startedAt = performance.now();
  let calls = 0;
  await new Promise<void>((resolve) => {
    const callback = () => {
      calls += 1;
      resolve();
    };
    startLongTimer(callback, 100, { maxTimerMs: 40 });
  });
  // Each of the three timers may be a millisecond early; without the last one it would be 80.
  t.true(performance.now() - startedAt >= 95);
  t.is(calls, 1);
});

test('months are no reason to call back at once, and a cancelled timer never does', async (t) => {
  const timers = [startLongTimer(() => t.fail(), 90 * 86_400_000), startLongTimer(() => t.fail(), 5)];
  for (const timer of timers) timer.cancel();
  const other = startLongTimer(() => t.fail(), 90 * 86_400_000, { ref: false });
  await new Promise<void>((resolve) => startLongTimer(resolve, 20));
  other.cancel();
  t.pass();
});
