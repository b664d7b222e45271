/** What a directory gives, where it may have it, and what it never does. */

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statfsSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { CACHE_TAG, CACHE_TAG_NAME } from '../../src/cache-tag.js';
import { TmaxError } from '../../src/errors.js';
import { CopyState } from '../../src/sources/copy-state.js';
import copyImage from '../../src/sources/copy-thread.js';
import { DirectorySource } from '../../src/sources/directory-source.js';
import type { BlobAddress, DownloadOptions } from '../../src/sources/source.js';
import { btrfsFolder, memoryFolder } from '../support/loop-disk.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';
import { patternBytes, sha256Of } from '../support/transfers.js';

const MIB = 2 ** 20;
const BYTES = patternBytes(3 * MIB + 5);
const ADDRESS = addressOf('images/a.sif', BYTES);

function addressOf(path: string, bytes: Buffer): BlobAddress {
  return { repository: 'org/pool', commit: 'c'.repeat(40), path, sha256: sha256Of(bytes), sizeBytes: bytes.length };
}

/** A directory, a partial file beside it (not there yet), and the source. */
function setUp(t: ExecutionContext, { disk = temporaryFolder(t), idleTimeoutMs = 20_000 } = {}) {
  const folder = mkdtempSync(join(disk, 'source-'));
  const partial = join(disk, 'partial');
  const source = new DirectorySource(folder, { idleTimeoutMs });
  t.teardown(() => source.close());
  const put = (place: string, bytes: Buffer = BYTES): string => {
    const path = join(folder, place);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, bytes);
    return path;
  };
  const link = (place: string, target: string): void => {
    mkdirSync(dirname(join(folder, place)), { recursive: true });
    symlinkSync(target, join(folder, place));
  };
  const download = (options: Partial<DownloadOptions> = {}, address = ADDRESS) =>
    source.download(address, partial, { signal: new AbortController().signal, ...options });
  const refusal = async () => await t.throwsAsync(download(), { instanceOf: TmaxError });
  return { folder, partial, source, put, link, download, refusal };
}

const { sha256, commit } = ADDRESS;
for (const place of [
  `blobs/${sha256.slice(0, 2)}/${sha256}`,
  `blobs/${sha256}`,
  `snapshots/${commit}/images/a.sif`,
  `datasets--org--pool/blobs/${sha256}`,
  `datasets--org--pool/snapshots/${commit}/images/a.sif`,
  `models--org--pool/blobs/${sha256}`,
  `hub/datasets--org--pool/blobs/${sha256}`,
  'images/a.sif',
]) {
  test(`an image is found at ${place.replace(sha256, '<sha256>').replace(commit, '<commit>')}`, async (t) => {
    const { put, partial, download } = setUp(t);
    put(place);
    const progress: number[] = [];
    const result = await download({ onProgress: (bytes) => progress.push(bytes) });
    t.deepEqual(result, { sizeBytes: BYTES.length, sha256, resumedBytes: 0, attempts: 1 });
    t.true(readFileSync(partial).equals(BYTES));
    t.is(progress.at(-1), BYTES.length);
  });
}

test('the links of the Hub’s cache are followed, those that lead out of it are not', async (t) => {
  const { folder, put, link, download, refusal } = setUp(t);
  const snapshot = `datasets--org--pool/snapshots/${commit}/images/a.sif`;
  // As other names than the digest, so that only the link leads there.
  put('datasets--org--pool/blobs/etag');
  link(snapshot, '../../../blobs/etag');
  t.is((await download()).sha256, sha256);
  unlinkSync(join(folder, snapshot));
  const outside = join(temporaryFolder(t), 'a.sif');
  writeFileSync(outside, BYTES);
  link(snapshot, outside);
  const error = await refusal();
  t.is(error.errno, 'EHOSTUNREACH');
  t.true(error.message.includes(`it leads out of the directory, to ${outside}`), error.message);
});

test('a folder that is itself behind a link is one', async (t) => {
  const { folder, put, partial } = setUp(t);
  put('images/a.sif');
  const link = join(temporaryFolder(t), 'link');
  symlinkSync(folder, link);
  const source = new DirectorySource(link, { idleTimeoutMs: 20_000 });
  t.teardown(() => source.close());
  await source.check();
  t.is((await source.download(ADDRESS, partial, { signal: new AbortController().signal })).sha256, sha256);
});

test('what it does not have, or of another size, it can’t give, and says so; what is in the partial file stays', async (t) => {
  const { put, partial, refusal } = setUp(t);
  writeFileSync(partial, 'a prefix');
  const absent = await refusal();
  t.is(absent.errno, 'EHOSTUNREACH');
  t.regex(absent.message, /^images\/a\.sif is not in dir:\/.*[^)]$/);
  put('images/a.sif', Buffer.from('older'));
  t.regex((await refusal()).message, /\(images\/a\.sif has 5 bytes, not 3145733\)$/);
  t.is(readFileSync(partial, 'utf8'), 'a prefix');
});

test('a FIFO or a folder in its place is not waited for', async (t) => {
  const { folder, put, refusal } = setUp(t);
  put('images/x');
  execFileSync('mkfifo', [join(folder, 'images', 'a.sif')]);
  mkdirSync(join(folder, 'blobs', sha256), { recursive: true });
  t.regex((await refusal()).message, /blobs\/[0-9a-f]{64} is not a file; images\/a\.sif is not a file/);
});

test('a wrong file of the right size is passed over for a right one, and told by its digest where there is none', async (t) => {
  const { put, partial, download } = setUp(t);
  const wrong = Buffer.from(BYTES);
  wrong[5] = 255 - (wrong[5] ?? 0);
  put(`blobs/${sha256}`, wrong);
  t.is((await download()).sha256, sha256Of(wrong));
  put('images/a.sif');
  t.is((await download()).sha256, sha256);
  t.true(readFileSync(partial).equals(BYTES));
});

test('a longer partial file of an earlier try is replaced', async (t) => {
  const { put, partial, download } = setUp(t);
  put('images/a.sif');
  writeFileSync(partial, Buffer.alloc(5 * MIB, 'x'));
  await download();
  t.true(readFileSync(partial).equals(BYTES));
});

test('the directory’s file stays what it is in everything, and shares nothing that could change', async (t) => {
  const { put, partial, download } = setUp(t);
  const path = put('images/a.sif');
  const before = lstatSync(path, { bigint: true });
  await download();
  const after = lstatSync(path, { bigint: true });
  for (const field of ['ino', 'mode', 'nlink', 'atimeNs', 'mtimeNs', 'ctimeNs'] as const)
    t.is(after[field], before[field]);
  writeFileSync(path, 'changed');
  t.true(readFileSync(partial).equals(BYTES));
});

test('a copy that is called off ends at once, and touches the partial file no more', async (t) => {
  const { folder, put, partial, source } = setUp(t);
  // Takes longer to copy than it takes to be called off, and nothing to make.
  truncateSync(put('images/large.sif', Buffer.alloc(0)), 1024 * MIB);
  put('images/a.sif');
  const large = { ...ADDRESS, path: 'images/large.sif', sha256: 'f'.repeat(64), sizeBytes: 1024 * MIB };
  const controller = new AbortController();
  const onProgress = (bytes: number) => bytes > 0 && controller.abort();
  const error = await t.throwsAsync(source.download(large, partial, { signal: controller.signal, onProgress }), {
    instanceOf: TmaxError,
  });
  t.is(error.errno, 'EINTR');
  const left = lstatSync(partial, { bigint: true });
  t.true(left.size > 0n && left.size < BigInt(large.sizeBytes), 'it was ended on its way');
  const other = join(folder, 'other');
  t.is((await source.download(ADDRESS, other, { signal: new AbortController().signal })).sha256, sha256);
  const after = lstatSync(partial, { bigint: true });
  // Not its blocks, of which the disk may take some more when it writes what it has in memory.
  for (const field of ['ino', 'size', 'mtimeNs', 'ctimeNs'] as const) t.is(after[field], left[field]);
});

test('who calls a copy off right before it makes the partial file is told to wait for that', (t) => {
  const { folder, partial, put } = setUp(t);
  put('images/a.sif');
  const state = new CopyState();
  const { sha256, sizeBytes, path } = ADDRESS;
  let isOver: boolean | undefined;
  const outcome = copyImage({
    folder,
    places: [path],
    sizeBytes,
    sha256,
    linkPath: undefined,
    memory: state.memory,
    // Asked for at that very moment.
    get partialPath() {
      isOver ??= state.abandon();
      return partial;
    },
  });
  t.is(outcome.kind, 'abandoned');
  t.is(isOver, !existsSync(partial));
});

test('a thread says that it has begun before it touches a folder, which may hang', (t) => {
  const { folder, partial } = setUp(t);
  const state = new CopyState();
  const { sha256, sizeBytes, path } = ADDRESS;
  const begun: boolean[] = [];
  copyImage({
    places: [path],
    sizeBytes,
    sha256,
    memory: state.memory,
    partialPath: partial,
    linkPath: undefined,
    // Asked for whenever the thread is about to look into it.
    get folder() {
      begun.push(state.isStarted);
      return folder;
    },
  });
  t.true(begun.length > 0);
  t.false(begun.includes(false));
});

test('closing ends what is being copied', async (t) => {
  const { put, source, download } = setUp(t);
  put('images/a.sif');
  const ended = t.throwsAsync(download(), { instanceOf: TmaxError });
  await source.close();
  t.is((await ended).errno, 'EINTR');
  t.is((await t.throwsAsync(download(), { instanceOf: TmaxError })).errno, 'EINTR');
});

test('a folder that is not there, or none, is found out at the start', async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'file'), '');
  for (const [name, words] of [
    ['none', /^the source dir:\/.*none can't be read: ENOENT/],
    ['file', /^the source dir:\/.*file is not a folder$/],
  ] as const) {
    const source = new DirectorySource(join(folder, name), { idleTimeoutMs: 20_000 });
    t.teardown(() => source.close());
    t.regex((await t.throwsAsync(source.check(), { instanceOf: TmaxError })).message, words);
  }
});

test('a full disk of the cache is told as such', async (t) => {
  const { put, source } = setUp(t);
  put('images/a.sif');
  const partial = join(await memoryFolder(t, MIB), 'partial');
  const { signal } = new AbortController();
  const error = await t.throwsAsync(source.download(ADDRESS, partial, { signal }), { instanceOf: TmaxError });
  t.is(error.errno, 'ENOSPC');
});

test('where the file system can, the two share their bytes on disk; a change of one is none of the other', async (t) => {
  const disk = await btrfsFolder(t);
  const { put, partial, download } = setUp(t, { disk });
  const large = patternBytes(64 * MIB);
  const address = addressOf('images/a.sif', large);
  const path = put('images/a.sif', large);
  const usedBytes = () => {
    execFileSync('sync', ['--file-system', disk]);
    const { bfree, blocks, bsize } = statfsSync(disk);
    return (blocks - bfree) * bsize;
  };
  const before = usedBytes();
  t.is((await download({}, address)).sha256, address.sha256);
  t.true(usedBytes() - before < large.length / 4, `${usedBytes() - before} bytes more`);
  writeFileSync(path, Buffer.alloc(large.length, 'x'));
  t.true(readFileSync(partial).equals(large));
});

const secondsOf = (path: string) => Math.floor(lstatSync(path).mtimeMs / 1000);

/** On a file system without reflinks, with an image that its owner has made read-only. */
async function setUpOurs(t: ExecutionContext, bytes = BYTES, idleTimeoutMs = 20_000) {
  const disk = await memoryFolder(t, 16 * MIB);
  const trial = setUp(t, { disk, idleTimeoutMs });
  const image = trial.put('images/a.sif', bytes);
  chmodSync(image, 0o444);
  return { ...trial, disk, image, linkPath: join(disk, 'link') };
}

test('an image that is ours to keep gets a second name instead of a copy, and stays what it is', async (t) => {
  const { image, linkPath, partial, download } = await setUpOurs(t);
  const before = lstatSync(image, { bigint: true });
  const progress: number[] = [];
  t.like(await download({ linkPath, onProgress: (bytes) => progress.push(bytes) }), {
    sha256,
    linked: { modifiedSeconds: secondsOf(image) },
  });
  t.is(progress.at(-1), BYTES.length);
  const after = lstatSync(image, { bigint: true });
  for (const field of ['mode', 'atimeNs', 'mtimeNs'] as const) t.is(after[field], before[field]);
  t.is(lstatSync(linkPath, { bigint: true }).ino, before.ino);
  t.is(lstatSync(partial).size, 0);
});

type Ours = Awaited<ReturnType<typeof setUpOurs>>;
for (const [what, change] of [
  ['that its owner may write to', ({ image }: Ours) => chmodSync(image, 0o644)],
  ['that anything but its being read-only would have to change of', ({ image }: Ours) => chmodSync(image, 0o555)],
  ['of another user', ({ image }: Ours) => chownSync(image, 65_534, 65_534)],
  ['of another cache of tmaxfs', ({ folder }: Ours) => writeFileSync(join(folder, CACHE_TAG_NAME), CACHE_TAG)],
] as const) {
  test(`an image ${what} is copied`, async (t) => {
    const trial = await setUpOurs(t);
    change(trial);
    const { download, linkPath, partial, image } = trial;
    t.like(await download({ linkPath }), { sha256, linked: undefined });
    t.true(readFileSync(partial).equals(BYTES));
    t.false(existsSync(linkPath));
    t.is(lstatSync(image).nlink, 1);
  });
}

test('an image on another file system, and one that the file system can clone, are copied', async (t) => {
  const { download, linkPath, image } = await setUpOurs(t);
  const elsewhere = join(temporaryFolder(t), 'link');
  t.is((await download({ linkPath: elsewhere })).linked, undefined);
  t.is(lstatSync(image).nlink, 1);
  const disk = await btrfsFolder(t);
  const cloned = setUp(t, { disk });
  chmodSync(cloned.put('images/a.sif'), 0o444);
  t.is((await cloned.download({ linkPath: join(disk, 'link') })).linked, undefined);
  t.false(existsSync(linkPath));
});

test('of a wrong file that is ours no second name is left, and a right one in another place is found', async (t) => {
  const wrong = Buffer.from(BYTES);
  wrong.writeUInt8(wrong.readUInt8(5) ^ 1, 5);
  const { disk, image, linkPath, put, partial, download } = await setUpOurs(t, wrong);
  t.like(await download({ linkPath }), { sha256: sha256Of(wrong), linked: undefined });
  t.true(readFileSync(partial).equals(wrong));
  t.deepEqual(
    readdirSync(disk).filter((name) => name === 'link'),
    [],
  );
  chmodSync(put(`blobs/${sha256}`, wrong), 0o444);
  const right = put(`snapshots/${commit}/images/a.sif`);
  chmodSync(right, 0o444);
  t.like(await download({ linkPath }), { sha256, linked: { modifiedSeconds: secondsOf(right) } });
  t.is(lstatSync(linkPath).ino, lstatSync(right).ino);
  t.is(lstatSync(image).nlink, 1);
});

test('an image that another program has locked is copied, and the lock not waited for', async (t) => {
  const { image, linkPath, download } = await setUpOurs(t);
  const locking = execa('flock', ['--exclusive', image, 'sh', '-c', 'echo locked; cat']);
  await once(locking.stdout, 'data');
  t.like(await download({ linkPath }), { sha256, linked: undefined });
  t.is(lstatSync(image).nlink, 1);
  locking.stdin.end();
  await locking;
  t.like(await download({ linkPath }), { linked: { modifiedSeconds: secondsOf(image) } });
});

test('a disk that hangs where it is looked whether an image is ours is given up as anywhere else', async (t) => {
  const { folder, linkPath, download } = await setUpOurs(t, BYTES, 2000);
  const pool = await MountedPool.start(t, smallPool(1, 50_000));
  const stall = pool.hub.fault({ path: 'images/0.sif', fault: { kind: 'stall' }, requests: 'every' });
  const tag = join(folder, CACHE_TAG_NAME);
  writeFileSync(tag, '');
  execFileSync('mount', ['--bind', join(pool.mountpoint, 'v', 't0.sif'), tag]);
  t.teardown(() => execFileSync('umount', ['--lazy', tag]));
  const given = download({ linkPath });
  // What hung for ever shows as that, not as a test without an end.
  const error = await Promise.race([given.catch((thrown: unknown) => thrown), delay(60_000, 'hangs', { ref: false })]);
  stall.remove();
  t.regex(error instanceof TmaxError ? error.message : String(error), /has not answered for 2 s/);
  t.false(existsSync(linkPath));
});

test('a disk that does not answer is given up, refused at once while it hangs, and asked again once it answers', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1, 50_000));
  const [file] = pool.options.files;
  if (file === undefined) throw new Error('no file');
  const stall = pool.hub.fault({ path: 'images/0.sif', fault: { kind: 'stall' }, requests: 'every' });
  // The mount of another pool, whose open waits for its own Hub, hangs as a disk of the network does.
  const source = new DirectorySource(pool.mountpoint, { idleTimeoutMs: 5000 });
  t.teardown(() => source.close());
  const address: BlobAddress = { ...ADDRESS, path: 'v/t0.sif', sha256: file.sha256, sizeBytes: file.sizeBytes };
  const partial = join(pool.folder, 'partial');
  const ask = () => source.download(address, partial, { signal: new AbortController().signal });
  const silent = await t.throwsAsync(ask(), { instanceOf: TmaxError });
  t.is(silent.errno, 'EHOSTUNREACH');
  t.regex(silent.message, /its disk has not answered for 5 s$/);
  const startedAtMs = performance.now();
  await t.throwsAsync(ask(), { message: /has not answered/ });
  t.true(performance.now() - startedAtMs < 4000, 'it was not waited for again');
  t.false(existsSync(partial));
  stall.remove();
  // The thread comes back from its open, and what it was to copy is not wanted any more.
  while (true) {
    const answer = await ask().catch((error: unknown) => error);
    if (answer instanceof TmaxError) {
      t.regex(answer.message, /has not answered/);
      await new Promise((resolve) => setTimeout(resolve, 20));
    } else break;
  }
  t.is(sha256Of(readFileSync(partial)), file.sha256);
});
