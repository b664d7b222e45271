/** Which source is asked when, if one of them has wrong bytes. */

import test from 'ava';
import { TmaxError } from '../../src/errors.js';
import { blobOf, errnoOf, holds, setUp, TestSource } from '../support/blob-cache.js';

/** Sources that write into one list whom was asked. */
function sourcesThat(...answers: readonly ('wrong' | 'right' | 'dead' | 'nonsense')[]) {
  const blob = blobOf('a');
  const asked: string[] = [];
  const sources = answers.map((answer, index) => {
    const source = new TestSource(`${answer}${index}`);
    source.on('download', () => asked.push(source.name));
    source.contents.set(blob.address.sha256, answer === 'right' ? blob.content : Buffer.alloc(1000, 'x'));
    if (answer === 'dead') source.failure = new TmaxError('EHOSTUNREACH', 'no answer');
    if (answer === 'nonsense') source.failure = new TmaxError('EBADMSG', 'HTML, again and again');
    return source;
  });
  return { blob, asked, sources };
}

for (const [what, answers, order, errno] of [
  ['one source is asked again, once', ['wrong'], ['wrong0', 'wrong0'], 'EBADMSG'],
  ['the next source is asked first', ['wrong', 'right'], ['wrong0', 'right1'], undefined],
  ['all are asked before any is asked again', ['wrong', 'wrong'], ['wrong0', 'wrong1', 'wrong0', 'wrong1'], 'EBADMSG'],
  ['a source without an answer is not asked again', ['wrong', 'dead'], ['wrong0', 'dead1', 'wrong0'], 'EBADMSG'],
  [
    'one that gave up on nonsense is not asked again',
    ['nonsense', 'wrong'],
    ['nonsense0', 'wrong1', 'wrong1'],
    'EBADMSG',
  ],
  ['without wrong bytes each is asked once', ['dead', 'dead'], ['dead0', 'dead1'], 'EHOSTUNREACH'],
] as const) {
  test(`after wrong bytes, ${what}: ${answers.join(', ')}`, async (t) => {
    const { blob, asked, sources } = sourcesThat(...answers);
    const { open, cache } = await setUp(t, { sources });
    if (errno === undefined) t.true(holds(await open(blob), blob));
    else t.is(await errnoOf(t, () => open(blob)), errno);
    t.deepEqual(asked, [...order]);
    t.is(cache.statistics().quarantine.length, errno === 'EBADMSG' ? 1 : 0);
  });
}

test('where no source has it, the error has the words of each, and the errno of who said most', async (t) => {
  const { blob, sources } = sourcesThat('dead', 'dead', 'dead');
  const errors = [
    new TmaxError('EHOSTUNREACH', 'not in dir:/a'),
    new TmaxError('EACCES', 'the Hub says 403'),
    new TmaxError('EHOSTUNREACH', 'not in dir:/b'),
  ];
  for (const [index, source] of sources.entries()) source.failure = errors[index];
  const { open } = await setUp(t, { sources });
  const error = await t.throwsAsync(open(blob), { instanceOf: TmaxError });
  t.is(error.errno, 'EACCES');
  t.is(error.message, 'not in dir:/a; the Hub says 403; not in dir:/b');
});

test('where the disk of the cache is full, nobody else is asked', async (t) => {
  const { blob, asked, sources } = sourcesThat('dead', 'right');
  const [full] = sources;
  if (full !== undefined) full.failure = new TmaxError('ENOSPC', 'full');
  const { open } = await setUp(t, { sources });
  t.is(await errnoOf(t, () => open(blob)), 'ENOSPC');
  t.deepEqual(asked, ['dead0']);
});
