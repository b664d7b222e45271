/** Images that are proven while they are written: as they would be judged whole, and ahead of the last byte. */

import { appendFileSync, writeFileSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import test from 'ava';
import fc from 'fast-check';
import { FollowingProof, type ProofThreads } from '../../src/verify/following-proof.js';
import type { DataBlocks } from '../../src/verify/squashfs/data-blocks.js';
import type { Verdict } from '../../src/verify/verdict.js';
import { Verifier } from '../../src/verify/verifier.js';
import { proveForm, proveGrowingForm, verifyImage } from '../../src/verify/verify.js';
import { brokenImages, goodImageBytes, goodImages, imageFile } from '../support/images.js';
import { buildSif, pseudorandomBytes, sha256Of } from '../support/sif-writer.js';
import { buildSquashfs } from '../support/squashfs-writer.js';

const VALID: Verdict = { outcome: 'valid', level: 'deep', architecture: 'amd64', warnings: [] };

function sharedCopy(bytes: Buffer): SharedArrayBuffer {
  const shared = new SharedArrayBuffer(bytes.length);
  Buffer.from(shared).set(bytes);
  return shared;
}

function expectationOf(bytes: Buffer) {
  return { sizeBytes: bytes.length, sha256: sha256Of(bytes) };
}

/** Writes the image in steps, as a fetch would, and answers with the verdict of the proof that followed. */
async function follow(verifier: Verifier, name: string, bytes: Buffer, steps: readonly number[], tailBytes: number) {
  const path = imageFile(name, Buffer.alloc(0));
  const proof = verifier.follow(path, { sizeBytes: bytes.length, sha256: sha256Of(bytes) }, 'deep');
  let written = 0;
  const write = async (end: number): Promise<void> => {
    appendFileSync(path, bytes.subarray(written, end));
    written = Math.max(written, end);
    proof.written(written);
    await setImmediate();
  };
  for (const [index, share] of steps.entries()) {
    if (index === 1 && tailBytes > 0) proof.tail(sharedCopy(bytes.subarray(-tailBytes)));
    await write(Math.floor(bytes.length * share));
  }
  await write(bytes.length);
  return await proof.conclude();
}

const stepsOf = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 }).map((shares) => shares.sort());

test('an image is judged while it is written as it is when it lies there whole', async (t) => {
  const verifier = new Verifier({ threads: 2 });
  t.teardown(() => verifier.close());
  const images = [
    ...goodImages.map(({ name }) => ({ name, bytes: goodImageBytes(name) })),
    ...brokenImages().map(({ name, bytes }) => ({ name, bytes })),
  ];
  for (const { name, bytes } of images) {
    const expectation = { sizeBytes: bytes.length, sha256: sha256Of(bytes) };
    const expected = await verifyImage(imageFile(`whole-${name}`, bytes), expectation, 'deep');
    await fc.assert(
      fc.asyncProperty(stepsOf, fc.integer({ min: 0, max: bytes.length }), async (steps, tailBytes) => {
        t.deepEqual(await follow(verifier, `growing-${name}`, bytes, steps, tailBytes), expected, name);
      }),
      { numRuns: 3 },
    );
  }
});

test('the form of an image is proven by its first and its last bytes alone', async (t) => {
  for (const { name } of goodImages) {
    const bytes = goodImageBytes(name);
    const whole = await proveForm(imageFile(`sound-${name}`, bytes), expectationOf(bytes), 'deep');
    // Between the two lies what is not read: its data.
    const starts = whole.data?.blocks.starts ?? [];
    const firstByte = starts[0] ?? 64 * 1024;
    const path = imageFile(`head-${name}`, bytes.subarray(0, firstByte));
    const lastBytes = sharedCopy(bytes.subarray(firstByte));
    const growing = { sizeBytes: bytes.length, tail: lastBytes };
    const form = await proveGrowingForm(path, growing, 'deep');
    t.deepEqual(form.verdict, whole.verdict, name);
    t.deepEqual(form.data?.blocks, whole.data?.blocks, name);
  }
});

/** What was asked of the threads, by threads that answer at once. */
function recordingThreads(blocks: DataBlocks): { readonly calls: string[]; readonly threads: ProofThreads } {
  const calls: string[] = [];
  const plan = { path: '/image', identity: 'it', compressor: 'gzip', blocks } as const;
  const threads: ProofThreads = {
    form: async () => {
      calls.push('form');
      return { verdict: VALID, data: plan };
    },
    data: async ({ blocks: { starts } }) => {
      calls.push(`data ${starts.join()}`);
      return undefined;
    },
    endsIn: async () => true,
    whole: async () => {
      calls.push('whole');
      return VALID;
    },
    last: async (_, parts) => {
      calls.push(`last of ${parts.length}`);
      return VALID;
    },
    stop: () => calls.push('stop'),
  };
  return { calls, threads };
}

const MIB = 2 ** 20;
/** Three blocks, each as long as a part of the proof. */
const BLOCKS: DataBlocks = {
  starts: Float64Array.from([1, 9, 17], (at) => at * MIB),
  diskBytes: Uint32Array.from([8 * MIB, 8 * MIB, 8 * MIB]),
  minBytes: Uint32Array.from([1, 1, 1]),
  maxBytes: Uint32Array.from([1, 1, 1]),
};

test('the form is proven as soon as head and tail are there, and data as soon as it has been written', async (t) => {
  const { calls, threads } = recordingThreads(BLOCKS);
  const proof = new FollowingProof(40 * MIB, threads);
  const writtenThen = async (bytes: number): Promise<string[]> => {
    proof.written(bytes);
    await setImmediate();
    return [...calls];
  };
  t.deepEqual(await writtenThen(MIB), []);
  proof.tail(new SharedArrayBuffer(10));
  t.deepEqual(await writtenThen(MIB), ['form']);
  t.deepEqual(await writtenThen(9 * MIB - 1), ['form']);
  t.deepEqual(await writtenThen(17 * MIB), ['form', 'data 1048576', 'data 9437184']);
  t.is(await proof.conclude(), VALID);
  t.deepEqual(calls.slice(3), ['data 17825792', 'last of 3', 'stop']);
});

test('a tail that comes before the head waits for it', async (t) => {
  const { calls, threads } = recordingThreads(BLOCKS);
  const proof = new FollowingProof(40 * MIB, threads);
  proof.tail(new SharedArrayBuffer(10));
  t.deepEqual(calls, []);
  proof.written(100);
  t.deepEqual(calls, []);
  proof.written(MIB);
  t.deepEqual(calls, ['form']);
  proof.abandon();
});

test('without a tail, or with one that is too short, all is proven at the end', async (t) => {
  const without = recordingThreads(BLOCKS);
  const proof = new FollowingProof(40 * MIB, without.threads);
  proof.written(40 * MIB);
  await proof.conclude();
  t.deepEqual(without.calls, ['stop', 'whole']);
  for (const form of [async () => undefined, () => Promise.reject(new Error('the disk'))]) {
    const { calls, threads } = recordingThreads(BLOCKS);
    const short = new FollowingProof(40 * MIB, { ...threads, form });
    short.tail(new SharedArrayBuffer(10));
    short.written(40 * MIB);
    await short.conclude();
    t.deepEqual(calls, ['stop', 'whole']);
  }
});

test('nothing more is read of bytes that will not be used', async (t) => {
  const { calls, threads } = recordingThreads(BLOCKS);
  const proof = new FollowingProof(40 * MIB, threads);
  proof.tail(new SharedArrayBuffer(10));
  proof.written(MIB);
  proof.abandon();
  await setImmediate();
  proof.written(40 * MIB);
  await setImmediate();
  t.deepEqual(calls, ['form', 'stop']);
});

test('a proof that is called off ends with EINTR, and one of a closed verifier too', async (t) => {
  const verifier = new Verifier({ threads: 1 });
  t.teardown(() => verifier.close());
  const image = pseudorandomBytes(1, 100_000);
  const path = imageFile('called-off', image);
  const expectation = { sizeBytes: image.length, sha256: sha256Of(image) };
  const controller = new AbortController();
  const proof = verifier.follow(path, expectation, 'deep', { signal: controller.signal });
  controller.abort();
  await t.throwsAsync(proof.conclude(), { message: /interrupted/ });
  await verifier.close();
  await t.throwsAsync(verifier.follow(path, expectation, 'deep').conclude(), { message: /interrupted/ });
});

test('what was written after its form was proven is still judged by its content', async (t) => {
  const verifier = new Verifier({ threads: 1 });
  t.teardown(() => verifier.close());
  const content = Buffer.alloc(300_000, 'words that can be compressed. ');
  const squashfs = buildSquashfs({ kind: 'directory', entries: { text: { kind: 'file', content } } });
  const padding = { type: 0x4005, content: Buffer.alloc(200_000), name: 'padding' };
  const image = buildSif({ squashfs, objects: [padding] });
  const start = image.indexOf('hsqs') + 96;
  image.fill(0xff, start + 4, start + 40);
  const path = imageFile('late', Buffer.alloc(0));
  writeFileSync(path, image.subarray(0, 100_000));
  const proof = verifier.follow(path, { sizeBytes: image.length, sha256: sha256Of(image) }, 'deep');
  proof.tail(sharedCopy(image.subarray(100_000)));
  proof.written(100_000);
  writeFileSync(path, image);
  proof.written(image.length);
  t.like(await proof.conclude(), { outcome: 'invalid', level: 'deep', finding: { code: 'squashfs-data-block' } });
});

test('a tail other than what the file ends in decides nothing, for good or bad', async (t) => {
  const verifier = new Verifier({ threads: 2 });
  t.teardown(() => verifier.close());
  const content = Buffer.alloc(300_000, 'words that can be compressed. ');
  const squashfs = buildSquashfs({ kind: 'directory', entries: { text: { kind: 'file', content } } });
  const good = buildSif({ squashfs, objects: [{ type: 0x4005, content: Buffer.alloc(200_000), name: 'padding' }] });
  const broken = Buffer.from(good);
  // Its inode table, where the superblock says that it is.
  const superblock = good.indexOf('hsqs');
  const table = superblock + Number(good.readBigUInt64LE(superblock + 64));
  broken.fill(0xff, table, table + 20);
  const verdictOn = async (image: Buffer, shown: Buffer) => {
    const path = imageFile('tail', image);
    const proof = verifier.follow(path, { sizeBytes: image.length, sha256: sha256Of(image) }, 'deep');
    proof.tail(sharedCopy(shown.subarray(table)));
    proof.written(image.length);
    return await proof.conclude();
  };
  t.like(await verdictOn(good, good), { outcome: 'valid', level: 'deep' });
  t.like(await verdictOn(broken, broken), { outcome: 'invalid' });
  t.deepEqual(await verdictOn(good, broken), await verdictOn(good, good));
  t.deepEqual(await verdictOn(broken, good), await verdictOn(broken, broken));
});

test('where one part of the data can not be judged, the others are called off', async (t) => {
  const { calls, threads } = recordingThreads(BLOCKS);
  const proof = new FollowingProof(40 * MIB, { ...threads, data: () => Promise.reject(new Error('the disk')) });
  proof.tail(new SharedArrayBuffer(10));
  proof.written(40 * MIB);
  await t.throwsAsync(proof.conclude(), { message: 'the disk' });
  t.deepEqual(calls, ['form', 'stop']);
});
