/** Which source is asked when, if one of them has wrong bytes. */

import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import test from 'ava';
import { TmaxError } from '../../src/errors.js';
import { AbsentBlob } from '../../src/sources/failure.js';
import { FAILURES_TO_LEAVE_ALONE } from '../../src/sources/limits.js';
import { SourceHealth } from '../../src/sources/source-health.js';
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

test('where one source has wrong bytes and the others fail, the error has the words of them too', async (t) => {
  const { blob, sources } = sourcesThat('wrong', 'dead', 'dead');
  for (const [index, source] of sources.entries())
    if (index > 0) source.failure = new TmaxError('EHOSTUNREACH', `no ${index}`);
  const { open } = await setUp(t, { sources });
  const error = await t.throwsAsync(open(blob), { instanceOf: TmaxError });
  t.is(error.errno, 'EBADMSG');
  t.regex(error.message, /sha256-mismatch.*; elsewhere: no 1; no 2; it is tried anew/);
});

for (const [errno, isLeftAlone] of [
  ['ENOENT', false],
  ['EACCES', false],
  ['EIO', true],
] as const) {
  test(`a source that fails with ${errno} again and again is ${isLeftAlone ? '' : 'not '}left alone`, async (t) => {
    const [engine, last] = [new TestSource('engine'), new TestSource('last')];
    engine.failure = new TmaxError(errno, 'it fails', { source: 'engine' });
    const { open } = await setUp(t, { sources: [engine, last] });
    for (let index = 0; index < FAILURES_TO_LEAVE_ALONE; index += 1) {
      const blob = blobOf(String(index));
      last.contents.set(blob.address.sha256, blob.content);
      await open(blob);
    }
    t.is(engine.health.report().isLeftAlone, isLeftAlone);
  });
}

test('where the disk of the cache is full, nobody else is asked', async (t) => {
  const { blob, asked, sources } = sourcesThat('dead', 'right');
  const [full] = sources;
  if (full !== undefined) full.failure = new TmaxError('ENOSPC', 'full');
  const { open } = await setUp(t, { sources });
  t.is(await errnoOf(t, () => open(blob)), 'ENOSPC');
  t.deepEqual(asked, ['dead0']);
});

for (const [what, misbehave] of [
  ['is dead', (source: TestSource) => Object.assign(source, { failure: new TmaxError('EHOSTUNREACH', 'no answer') })],
  ['talks nonsense', (source: TestSource) => Object.assign(source, { failure: new TmaxError('EBADMSG', 'HTML') })],
  ['has wrong bytes', () => undefined],
] as const) {
  test(`a source that ${what} is left alone after some fetches, and asked again when it is due`, async (t) => {
    const [engine, last] = [new TestSource('engine'), new TestSource('last')];
    const clock = { ms: 0 };
    engine.health = new SourceHealth(() => clock.ms);
    misbehave(engine);
    const { open } = await setUp(t, { sources: [engine, last] });
    const blobs = Array.from({ length: FAILURES_TO_LEAVE_ALONE + 3 }, (_, index) => blobOf(String(index)));
    for (const { address, content } of blobs) last.contents.set(address.sha256, content);
    for (const blob of blobs.slice(0, -1)) t.true(holds(await open(blob), blob));
    t.is(engine.downloads.length, FAILURES_TO_LEAVE_ALONE);
    t.is(engine.health.report().wrongAnswers, what === 'is dead' ? 0 : FAILURES_TO_LEAVE_ALONE);
    clock.ms += engine.health.report().leftAloneMs;
    engine.failure = undefined;
    const blob = blobs.at(-1) ?? blobOf('?');
    engine.contents.set(blob.address.sha256, blob.content);
    t.true(holds(await open(blob), blob));
    t.is(last.downloads.length, blobs.length - 1);
    t.false(engine.health.report().isLeftAlone);
  });
}

test('a source that does not have the blob is asked for every other', async (t) => {
  const [engine, last] = [new TestSource('engine'), new TestSource('last')];
  engine.health = new SourceHealth();
  engine.failure = new AbsentBlob('not here');
  const { open } = await setUp(t, { sources: [engine, last] });
  for (let index = 0; index < 2 * FAILURES_TO_LEAVE_ALONE; index += 1) {
    const blob = blobOf(String(index));
    last.contents.set(blob.address.sha256, blob.content);
    await open(blob);
  }
  t.is(engine.downloads.length, 2 * FAILURES_TO_LEAVE_ALONE);
});

test('only the last source is asked with patience; one that perseveres gets its turn before the open fails', async (t) => {
  const blob = blobOf('a');
  const [first, hub, folder] = [new TestSource('first'), new TestSource('hub'), new TestSource('folder')];
  for (const one of [first, hub]) one.perseveres = true;
  hub.health = new SourceHealth();
  for (let failures = 0; failures < FAILURES_TO_LEAVE_ALONE; failures += 1) hub.health.failed('no answer', 'brief');
  first.failure = new TmaxError('EHOSTUNREACH', 'no answer');
  folder.failure = new AbsentBlob('not in folder');
  hub.contents.set(blob.address.sha256, blob.content);
  const { open } = await setUp(t, { sources: [first, hub, folder] });
  t.true(holds(await open(blob), blob));
  t.deepEqual(
    [first.patience, folder.patience, hub.patience],
    [['brief'], ['patient'], ['patient']],
    'the hub was left alone at first',
  );
});

test('the words of an open that fails name a source that was left alone, and its last failure', async (t) => {
  const [engine, last] = [new TestSource('engine'), new TestSource('last')];
  engine.health = new SourceHealth(() => 0);
  for (let failures = 0; failures < FAILURES_TO_LEAVE_ALONE; failures += 1) engine.health.failed('it hangs', 'brief');
  last.failure = new TmaxError('EHOSTUNREACH', 'no answer');
  const { open } = await setUp(t, { sources: [engine, last] });
  const error = await t.throwsAsync(open(blobOf('a')), { instanceOf: TmaxError });
  t.is(error.message, 'engine is left alone for 5 s more after 3 failures, the last: it hangs; no answer');
});

test('a prefix of wrong bytes that one source has left is not held against the next, which then brings all of it', async (t) => {
  const blob = blobOf('a', 1000);
  const [liar, honest] = [new TestSource('liar'), new TestSource('honest')];
  honest.health = new SourceHealth();
  const resumed: number[] = [];
  liar.download = async (_address, partialPath) => {
    writeFileSync(partialPath, Buffer.alloc(400, 'x'));
    throw new TmaxError('EHOSTUNREACH', 'cut');
  };
  honest.download = async ({ sizeBytes }, partialPath) => {
    const prefix = readFileSync(partialPath);
    resumed.push(prefix.length);
    const whole = Buffer.concat([prefix, blob.content.subarray(prefix.length)]);
    writeFileSync(partialPath, whole);
    const sha256 = createHash('sha256').update(whole).digest('hex');
    return { sizeBytes, sha256, resumedBytes: prefix.length, attempts: 1 };
  };
  const { open } = await setUp(t, { sources: [liar, honest] });
  t.true(holds(await open(blob), blob));
  t.deepEqual(resumed, [400, 0]);
  t.is(honest.health.report().wrongAnswers, 0);
});
