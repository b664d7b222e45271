import test from 'ava';
import fc from 'fast-check';
import { FAILURES_TO_LEAVE_ALONE, FIRST_LEAVE_MS, MAX_LEAVE_MS } from '../../src/sources/limits.js';
import { SourceHealth } from '../../src/sources/source-health.js';

function healthWithClock() {
  const clock = { ms: 0 };
  return { clock, health: new SourceHealth(() => clock.ms) };
}

test('a source that keeps failing is left alone, tried again by one fetch, for longer each time that this is in vain', (t) => {
  const { clock, health } = healthWithClock();
  for (let failures = 1; failures <= FAILURES_TO_LEAVE_ALONE; failures += 1) {
    t.true(health.admits());
    health.failed('no answer', true);
  }
  let leaveMs = FIRST_LEAVE_MS;
  for (let tries = 0; tries < 6; tries += 1) {
    t.like(health.report(), { isLeftAlone: true, leftAloneMs: leaveMs });
    clock.ms += leaveMs - 1;
    t.false(health.admits());
    clock.ms += 1;
    t.true(health.admits());
    t.false(health.admits(), 'one fetch tries it');
    health.failed('no answer', true);
    leaveMs = Math.min(MAX_LEAVE_MS, leaveMs * 2);
  }
  t.is(health.report().leftAloneMs, MAX_LEAVE_MS);
  clock.ms += MAX_LEAVE_MS;
  t.true(health.admits());
  health.brought();
  t.like(health.report(), { isLeftAlone: false, leftAloneMs: 0, failuresInARow: 0, wrongAnswers: 0 });
  t.true(health.admits());
});

test('many fetches that fail at one time count as one reason to leave it alone, not as many', (t) => {
  const { clock, health } = healthWithClock();
  for (let fetches = 0; fetches < 100; fetches += 1) health.failed('no answer', true);
  t.is(health.report().leftAloneMs, FIRST_LEAVE_MS);
  clock.ms += FIRST_LEAVE_MS;
  t.true(health.admits());
});

test('a fetch that tries it and is called off leaves it to the next to try', (t) => {
  const { clock, health } = healthWithClock();
  for (let fetches = 0; fetches < FAILURES_TO_LEAVE_ALONE; fetches += 1) health.lied('HTML', true);
  clock.ms += FIRST_LEAVE_MS;
  t.true(health.admits());
  clock.ms += FIRST_LEAVE_MS;
  t.true(health.admits());
  t.is(health.report().wrongAnswers, FAILURES_TO_LEAVE_ALONE);
});

test('the source after which there is none is never left alone', (t) => {
  const { health } = healthWithClock();
  for (let fetches = 0; fetches < 100; fetches += 1) health.failed('no answer', false);
  t.like(health.report(), { isLeftAlone: false, failuresInARow: 100 });
});

test('whatever happens, nobody has to wait longer than a minute to try it, and one good fetch makes it well', (t) => {
  const step = fc.oneof(
    fc.record({ kind: fc.constantFrom('ask', 'failed', 'lied', 'answered') }),
    fc.record({ kind: fc.constant('wait'), ms: fc.nat({ max: 100_000 }) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const { clock, health } = healthWithClock();
      for (const one of steps) {
        if ('ms' in one) clock.ms += one.ms;
        else if (one.kind === 'ask') health.admits();
        else if (one.kind === 'answered') health.brought();
        else health[one.kind as 'failed' | 'lied']('words', true);
        t.true(health.report().leftAloneMs <= MAX_LEAVE_MS);
        if (health.report().failuresInARow < FAILURES_TO_LEAVE_ALONE) t.false(health.report().isLeftAlone);
      }
      clock.ms += MAX_LEAVE_MS;
      t.true(health.admits());
      health.brought();
      t.false(health.report().isLeftAlone);
    }),
  );
});
