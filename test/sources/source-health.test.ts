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
    t.is(health.admits(), 'brief');
    health.failed('no answer', 'brief');
  }
  let leaveMs = FIRST_LEAVE_MS;
  for (let tries = 0; tries < 6; tries += 1) {
    t.like(health.report(), { isLeftAlone: true, leftAloneMs: leaveMs });
    clock.ms += leaveMs - 1;
    t.is(health.admits(), undefined);
    clock.ms += 1;
    t.is(health.admits(), 'trial');
    clock.ms += MAX_LEAVE_MS - 1;
    t.is(health.admits(), undefined, 'one fetch tries it');
    t.like(health.report(), { isLeftAlone: true, leftAloneMs: 0 });
    health.failed('no answer', 'trial');
    health.trialEnds();
    leaveMs = Math.min(MAX_LEAVE_MS, leaveMs * 2);
  }
  t.is(health.report().leftAloneMs, MAX_LEAVE_MS);
  clock.ms += MAX_LEAVE_MS;
  t.is(health.admits(), 'trial');
  health.brought();
  health.trialEnds();
  t.like(health.report(), { isLeftAlone: false, leftAloneMs: 0, failuresInARow: 0, wrongAnswers: 0 });
  t.is(health.admits(), 'brief');
});

test('many fetches that fail at one time count as one reason to leave it alone, not as many', (t) => {
  const { clock, health } = healthWithClock();
  for (let fetches = 0; fetches < 100; fetches += 1) health.failed('no answer', 'brief');
  t.is(health.report().leftAloneMs, FIRST_LEAVE_MS);
  clock.ms += FIRST_LEAVE_MS;
  t.is(health.admits(), 'trial');
  for (let fetches = 0; fetches < 100; fetches += 1) health.failed('no answer', 'brief');
  t.is(health.report().leftAloneMs, 0, 'those had begun before, and say nothing of the trial');
  t.is(health.admits(), undefined);
  health.failed('no answer', 'trial');
  t.is(health.report().leftAloneMs, 2 * FIRST_LEAVE_MS);
});

test('a trial that is called off shows nothing: the next follows after as long as before', (t) => {
  const { clock, health } = healthWithClock();
  for (let fetches = 0; fetches < FAILURES_TO_LEAVE_ALONE; fetches += 1) health.lied('HTML', 'brief');
  clock.ms += FIRST_LEAVE_MS;
  t.is(health.admits(), 'trial');
  clock.ms += FIRST_LEAVE_MS;
  health.trialEnds();
  t.is(health.admits(), undefined);
  clock.ms += FIRST_LEAVE_MS;
  t.is(health.admits(), 'trial');
  t.is(health.report().wrongAnswers, FAILURES_TO_LEAVE_ALONE);
});

test('a trial that takes long keeps others from the source for a minute at most', (t) => {
  const { clock, health } = healthWithClock();
  for (let fetches = 0; fetches < FAILURES_TO_LEAVE_ALONE; fetches += 1) health.failed('no answer', 'brief');
  clock.ms += FIRST_LEAVE_MS;
  t.is(health.admits(), 'trial');
  clock.ms += MAX_LEAVE_MS - 1;
  t.is(health.admits(), undefined);
  clock.ms += 1;
  t.is(health.admits(), 'trial');
});

test('the source after which there is none is never left alone', (t) => {
  const { health } = healthWithClock();
  for (let fetches = 0; fetches < 100; fetches += 1) health.failed('no answer', 'patient');
  t.like(health.report(), { isLeftAlone: false, failuresInARow: 100 });
});

test('whatever happens, nobody has to wait longer than a minute to try it, and one good fetch makes it well', (t) => {
  const step = fc.oneof(
    fc.record({ kind: fc.constantFrom('ask', 'answered', 'over') }),
    fc.record({ kind: fc.constantFrom('failed', 'lied'), patience: fc.constantFrom('brief', 'trial') }),
    fc.record({ kind: fc.constant('wait'), ms: fc.nat({ max: 100_000 }) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const { clock, health } = healthWithClock();
      for (const one of steps) {
        if ('ms' in one) clock.ms += one.ms;
        else if ('patience' in one) health[one.kind]('words', one.patience);
        else if (one.kind === 'ask') health.admits();
        else if (one.kind === 'answered') health.brought();
        else health.trialEnds();
        t.true(health.report().leftAloneMs <= MAX_LEAVE_MS);
        if (health.report().failuresInARow < FAILURES_TO_LEAVE_ALONE) t.false(health.report().isLeftAlone);
      }
      clock.ms += MAX_LEAVE_MS;
      t.truthy(health.admits());
      health.brought();
      t.false(health.report().isLeftAlone);
    }),
  );
});
