import test from 'ava';
import { AdaptivePolling, POLL_MS } from '../../src/fuse/kernel/adaptive-polling.js';

/** A polling thread whose time passes only as the test says, or by a tenth of `POLL_MS` each time it is asked. */
function setUp() {
  let nowMs = 0;
  let isTicking = false;
  const polling = new AdaptivePolling(() => {
    if (isTicking) nowMs += POLL_MS / 10;
    return nowMs;
  });
  /** How often it looked, and what it found. */
  const poll = (mailAtLook = Number.POSITIVE_INFINITY) => {
    let looks = 0;
    isTicking = true;
    const found = polling.poll(() => {
      looks += 1;
      return looks >= mailAtLook;
    });
    isTicking = false;
    return { looks, found };
  };
  const sleepFor = (milliseconds: number) => {
    polling.sleeps();
    nowMs += milliseconds;
    polling.wakes();
  };
  return { poll, sleepFor };
}

test('requests that come now and then are not waited for awake', (t) => {
  const { poll, sleepFor } = setUp();
  t.deepEqual(poll(), { looks: 0, found: false });
  sleepFor(100 * POLL_MS);
  t.deepEqual(poll(), { looks: 0, found: false });
});

test('requests that come close upon each other are waited for awake, as long as they do', (t) => {
  const { poll, sleepFor } = setUp();
  sleepFor(POLL_MS);
  t.deepEqual(poll(3), { looks: 3, found: true });
  t.deepEqual(poll(1), { looks: 1, found: true });
});

test('the first request that does not come in time ends that', (t) => {
  const { poll, sleepFor } = setUp();
  sleepFor(POLL_MS);
  const missed = poll();
  t.false(missed.found);
  t.true(missed.looks >= 8 && missed.looks <= 11, `${missed.looks} looks`);
  t.deepEqual(poll(), { looks: 0, found: false });
});

test('a request that came right after it had gone to sleep has it look on again', (t) => {
  const { poll, sleepFor } = setUp();
  sleepFor(POLL_MS);
  poll();
  sleepFor(50 * POLL_MS);
  t.is(poll().looks, 0);
  sleepFor(1.5 * POLL_MS);
  t.true(poll(2).found);
});
