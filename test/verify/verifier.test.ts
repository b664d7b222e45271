/** The pool of threads in which images are proven. */

import { truncateSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import test from 'ava';
import { TmaxError } from '../../src/errors.js';
import { Verifier } from '../../src/verify/verifier.js';
import { goodImage, goodImages, imageFile } from '../support/images.js';
import { buildSif, pseudorandomBytes, sha256Of, tinyImage } from '../support/sif-writer.js';
import { buildSquashfs } from '../support/squashfs-writer.js';

const LARGE_BYTES = 512 << 20;

/** Keeps a thread busy for about half a second: the digest of a large file (of zeros, that take no room) comes first. */
function slowTask(): { path: string; sizeBytes: number; sha256: string } {
  const path = imageFile('large', Buffer.alloc(0));
  truncateSync(path, LARGE_BYTES);
  return { path, sizeBytes: LARGE_BYTES, sha256: 'never' };
}

test.serial('no thread is started before the first image, and no more than were asked for', async (t) => {
  let started = 0;
  const count = (): void => {
    started += 1;
  };
  process.on('worker', count);
  t.teardown(() => process.off('worker', count));
  const verifier = new Verifier({ threads: 2 });
  t.teardown(() => verifier.close());
  t.is(started, 0);
  const bytes = tinyImage(1);
  const path = imageFile('threads', bytes);
  const expectation = { sizeBytes: bytes.length, sha256: sha256Of(bytes) };
  await Promise.all(Array.from({ length: 20 }, () => verifier.verify(path, expectation, 'deep')));
  t.true(started >= 1 && started <= 2);
});

test.serial('the main thread goes on with other things while an image is proven', async (t) => {
  const verifier = new Verifier({ threads: 1 });
  t.teardown(() => verifier.close());
  const { path, ...expectation } = slowTask();
  let done = false;
  const proof = verifier.verify(path, expectation, 'header').finally(() => {
    done = true;
  });
  let turns = 0;
  while (!done) {
    await setImmediate();
    turns += 1;
  }
  t.like(await proof, { outcome: 'invalid' });
  t.true(turns > 100, `${turns} turns of the event loop`);
});

test.serial('images are judged in threads as they are in the calling thread', async (t) => {
  const verifier = new Verifier({ threads: 2 });
  t.teardown(() => verifier.close());
  const verdicts = await Promise.all(
    goodImages.map(({ name, sizeBytes, sha256 }) => verifier.verify(goodImage(name), { sizeBytes, sha256 }, 'header')),
  );
  t.deepEqual([...new Set(verdicts.map((verdict) => verdict.outcome))], ['valid']);
  const bytes = tinyImage(1);
  const bad = await verifier.verify(
    imageFile('bad', bytes),
    { sizeBytes: bytes.length, sha256: sha256Of(tinyImage(2)) },
    'header',
  );
  t.like(bad, { outcome: 'invalid', finding: { code: 'sha256-mismatch' } });
});

test.serial('an error of the local disk comes out of a thread as the error that it was', async (t) => {
  const verifier = new Verifier({ threads: 1 });
  t.teardown(() => verifier.close());
  const error = await t.throwsAsync(verifier.verify('/does/not/exist', { sizeBytes: 1, sha256: '' }, 'header'));
  t.true(error instanceof TmaxError);
  t.like(error, { errno: 'EIO' });
});

test.serial('an abort ends one verification and no other', async (t) => {
  const verifier = new Verifier({ threads: 1 });
  t.teardown(() => verifier.close());
  const { path, ...expectation } = slowTask();
  const running = new AbortController();
  const first = verifier.verify(path, expectation, 'header', { signal: running.signal });
  const queued = new AbortController();
  const second = verifier.verify(path, expectation, 'header', { signal: queued.signal });
  const bytes = tinyImage(7);
  const third = verifier.verify(
    imageFile('third', bytes),
    { sizeBytes: bytes.length, sha256: sha256Of(bytes) },
    'header',
  );
  const order: string[] = [];
  const outcomes = Promise.allSettled([
    first.finally(() => order.push('running')),
    second.finally(() => order.push('queued')),
    third.finally(() => order.push('next')),
  ]);
  running.abort();
  queued.abort();
  const [one, two, three] = await outcomes;
  for (const aborted of [one, two]) t.like(aborted, { status: 'rejected', reason: { errno: 'EINTR' } });
  t.like(three, { status: 'fulfilled', value: { outcome: 'valid' } });
  t.deepEqual(order, ['running', 'queued', 'next'], 'who aborts waits for no thread');
});

test.serial(
  'the data of one image is decompressed by several threads, and the first damage in it is the one that is named',
  async (t) => {
    let started = 0;
    const count = (): void => {
      started += 1;
    };
    process.on('worker', count);
    t.teardown(() => process.off('worker', count));
    const verifier = new Verifier({ threads: 3 });
    t.teardown(() => verifier.close());
    // Blocks that shrink, but hardly: more than two parts of 32 MiB.
    const block = Buffer.concat([pseudorandomBytes(1, 112 << 10), Buffer.alloc(16 << 10)]);
    const content = Buffer.alloc(80 << 20, block);
    for (let at = 0; at < content.length; at += block.length) content.writeUInt32LE(at, at);
    const image = buildSif({
      squashfs: buildSquashfs({ kind: 'directory', entries: { large: { kind: 'file', content } } }),
    });
    const judge = (name: string, bytes: Buffer) => {
      return verifier.verify(
        imageFile(name, bytes),
        { sizeBytes: bytes.length, sha256: '', computedSha256: '' },
        'deep',
      );
    };
    t.like(await judge('parts', image), { outcome: 'valid', level: 'deep' });
    t.is(started, 3);
    for (const at of [60 << 20, 20 << 20]) image.fill(0xff, at, at + 4096);
    const verdict = await judge('damaged-parts', image);
    t.like(verdict, { outcome: 'invalid', level: 'deep', finding: { code: 'squashfs-data-block' } });
    const offset = verdict.outcome === 'valid' ? undefined : verdict.finding.offsetBytes;
    t.true(offset !== undefined && offset <= 20 << 20 && offset > (20 << 20) - (256 << 10), String(offset));
  },
);

test.serial('more images than the queue holds are refused with EBUSY', async (t) => {
  const verifier = new Verifier({ threads: 1 });
  const { path, ...expectation } = slowTask();
  const outcomes = Array.from({ length: 4200 }, () =>
    verifier.verify(path, expectation, 'header').then(
      () => 'judged',
      (error: unknown) => (error instanceof TmaxError ? error.errno : 'unknown'),
    ),
  );
  await verifier.close();
  const counts = new Map<string, number>();
  for (const outcome of await Promise.all(outcomes)) counts.set(outcome, (counts.get(outcome) ?? 0) + 1);
  t.deepEqual([...counts.keys()].sort(), ['EBUSY', 'EINTR']);
  t.true((counts.get('EBUSY') ?? 0) >= 100);
});

test.serial('closing ends what runs with EINTR, and a closed verifier takes nothing', async (t) => {
  const verifier = new Verifier({ threads: 1 });
  const { path, ...expectation } = slowTask();
  const running = verifier.verify(path, expectation, 'header');
  const closed = verifier.close();
  t.like(await t.throwsAsync(running), { errno: 'EINTR' });
  await closed;
  t.like(await t.throwsAsync(verifier.verify(path, expectation, 'header')), { errno: 'EINTR' });
});
