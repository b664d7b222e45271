import test from 'ava';
import fc from 'fast-check';
import { type Failure, RepeatedFailures } from '../../src/daemon/repeated-failures.js';

/** Longer than any test: what is counted is told by `flush`. */
const FOREVER_MS = 2 ** 31 - 1;

function failure(words: string, changes: Partial<Failure> = {}): Failure {
  return { level: 40, errno: 'EHOSTUNREACH', source: 'hub', words, reason: '', ...changes };
}

/** What is written of a row of failures, the first of each kind as "first". */
function told(failures: readonly Failure[], repeated = new RepeatedFailures(FOREVER_MS)): string[] {
  const lines: string[] = [];
  for (const one of failures) {
    const isFirst = repeated.isFirst(one, (_fields, words) => lines.push(words));
    if (isFirst) lines.push('first');
  }
  repeated.flush();
  return lines;
}

test('the first of a kind is told, the others are counted, whatever they are about', (t) => {
  const reason = (host: string, digest: string) => `${host} answers 503 for "x", ${digest} in 17 s`;
  t.deepEqual(
    told([
      failure('fetch of v/t0 failed: EHOSTUNREACH', { reason: reason('https://a.example/x', 'abcdef0123456789') }),
      failure('fetch of v/t1 failed: EHOSTUNREACH', { reason: reason('https://b.example/y', '99aabbccddeeff00') }),
      failure('fetch of w/other failed: EHOSTUNREACH', { reason: reason('http://c.example', '0123456789abcdef') }),
    ]),
    ['first', `2 more like this within ${FOREVER_MS / 1000} s: fetch of v/t0 failed: EHOSTUNREACH`],
  );
});

test('another errno, source, level, wording or reason is another kind', (t) => {
  const kinds = [
    failure('it failed'),
    failure('it failed', { errno: 'EACCES' }),
    failure('it failed', { source: 'mirror' }),
    failure('it failed', { level: 50 }),
    failure('it failed again'),
    failure('it failed', { reason: 'nothing came' }),
  ];
  t.deepEqual(
    told(kinds),
    kinds.map(() => 'first'),
  );
});

test('after a while it is told how many there were and what the latest was about, and the next is a first one', async (t) => {
  const repeated = new RepeatedFailures(20);
  const line = new Promise<[object, string]>((resolve) => {
    const write = (fields: object, words: string) => resolve([fields, words]);
    t.true(repeated.isFirst(failure('fetch of v/a failed'), write));
    t.false(repeated.isFirst(failure('fetch of v/b failed', { reason: '' }), write));
    t.false(repeated.isFirst(failure('fetch of v/c failed'), write));
    // Its timer lets a process end.
    setTimeout(() => undefined, 1000);
  });
  const [fields, words] = await line;
  t.deepEqual(fields, { errno: 'EHOSTUNREACH', source: 'hub', count: 2, latest: 'fetch of v/c failed' });
  t.is(words, '2 more like this within 0.02 s: fetch of v/a failed');
  t.true(repeated.isFirst(failure('fetch of v/d failed'), () => undefined));
});

test('none is lost: each is either told or counted, however many kinds there are', (t) => {
  const anyFailure = fc.record({
    level: fc.constantFrom(30, 40, 50),
    errno: fc.constantFrom('', 'EIO', 'EACCES'),
    source: fc.constantFrom('', 'hub'),
    words: fc.stringMatching(/^[a-z]{1,2} \d{1,3} [a-z]\/[a-z]$/),
    reason: fc.constantFrom('', 'why', 'x'.repeat(5000)),
  });
  fc.assert(
    fc.property(fc.array(anyFailure, { maxLength: 400 }), (failures) => {
      const lines = told(failures);
      const counted = lines.map((line) => Number(/^(\d+) more/.exec(line)?.[1] ?? 1));
      t.is(
        counted.reduce((sum, count) => sum + count, 0),
        failures.length,
      );
      t.true(lines.every((line) => line.length < 500));
    }),
  );
});

test('where kinds have no end, the oldest is told early', (t) => {
  const letters = (number: number) => String.fromCharCode(...[...String(number)].map((digit) => 97 + Number(digit)));
  const early: string[] = [];
  const repeated = new RepeatedFailures(FOREVER_MS);
  const note = (_fields: object, words: string) => early.push(words);
  repeated.isFirst(failure('oldest'), note);
  repeated.isFirst(failure('oldest'), note);
  for (let number = 0; number < 1000; number += 1) repeated.isFirst(failure(letters(number)), note);
  t.deepEqual(early, [`1 more like this within ${FOREVER_MS / 1000} s: oldest`]);
  t.true(repeated.isFirst(failure('oldest'), note));
});
