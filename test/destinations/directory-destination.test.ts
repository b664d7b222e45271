/** What is written to a directory that nodes share, when it is not, and who gets to fetch what. */

import { chmodSync, lstatSync, mkdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { TmaxError } from '../../src/errors.js';
import { DirectorySource } from '../../src/sources/directory-source.js';
import { type Blob, blobOf } from '../support/blob-cache.js';
import { destinationOn, filesIn, NO_LIMITS, publishedIn } from '../support/destinations.js';
import { memoryDisk } from '../support/memory-disk.js';
import { ext4Disk, quotaDisk } from '../support/small-disk.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;
const never = new AbortController().signal;
const BLOB = blobOf('a', 3 * MIB + 5);
const place = (folder: string, { address: { sha256 } }: Blob) => join(folder, 'blobs', sha256.slice(0, 2), sha256);

/** The proven file on a disk of its own. */
function fileOf(t: ExecutionContext, { content }: Blob): string {
  const path = join(temporaryFolder(t), 'blob');
  writeFileSync(path, content);
  return path;
}

const put = (t: ExecutionContext, destination: ReturnType<typeof destinationOn>, blob: Blob, mends = false) =>
  destination.put(blob.address, fileOf(t, blob), { signal: never, mends });
const refusalOf = async (t: ExecutionContext, act: () => Promise<unknown>) =>
  await t.throwsAsync(act, { instanceOf: TmaxError });

test('what is written is found by a source, whole, read-only, with nothing left beside it', async (t) => {
  const folder = temporaryFolder(t);
  const destination = destinationOn(t, folder);
  t.false(await destination.has(BLOB.address, never));
  t.is(await put(t, destination, BLOB), 'written');
  t.true(await destination.has(BLOB.address, never));
  t.is(lstatSync(place(folder, BLOB)).mode & 0o777, 0o444);
  t.deepEqual(filesIn(folder), [BLOB.address.sha256]);
  const source = new DirectorySource(folder, { idleTimeoutMs: 20_000 });
  t.teardown(() => source.close());
  const partial = join(temporaryFolder(t), 'partial');
  t.is((await source.download(BLOB.address, partial, { signal: never })).sha256, BLOB.address.sha256);
});

test('folders get the mode of the directory itself, so that a group can share it', async (t) => {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o2775);
  const destination = destinationOn(t, folder);
  const claim = await destination.claim(BLOB.address, never);
  t.is(claim.kind, 'ours');
  await put(t, destination, BLOB);
  for (const path of [dirname(place(folder, BLOB)), 'blobs', 'incoming', 'leases', 'leases/owners']) {
    const absolute = path.startsWith('/') ? path : join(folder, path);
    t.is(lstatSync(absolute).mode & 0o7777, 0o2775, path);
  }
});

test('what is there, by its size, is not written again', async (t) => {
  const folder = temporaryFolder(t);
  const destination = destinationOn(t, folder);
  await put(t, destination, BLOB);
  const before = lstatSync(place(folder, BLOB), { bigint: true });
  t.is(await put(t, destination, BLOB), 'there');
  t.is(await put(t, destination, BLOB, true), 'there', 'its bytes are right');
  const after = lstatSync(place(folder, BLOB), { bigint: true });
  for (const field of ['ino', 'size', 'mtimeNs', 'ctimeNs'] as const) t.is(after[field], before[field]);
});

test('what is there with another size, or was found wrong, is replaced', async (t) => {
  const folder = temporaryFolder(t);
  const destination = destinationOn(t, folder);
  mkdirSync(dirname(place(folder, BLOB)), { recursive: true });
  writeFileSync(place(folder, BLOB), 'cut');
  t.is(await put(t, destination, BLOB), 'written');
  const wrong = Buffer.from(BLOB.content);
  wrong[7] = 0;
  chmodSync(place(folder, BLOB), 0o644);
  writeFileSync(place(folder, BLOB), wrong);
  t.is(await put(t, destination, BLOB), 'there');
  t.is(await put(t, destination, BLOB, true), 'written');
  t.true(readFileSync(place(folder, BLOB)).equals(BLOB.content));
});

test('a file that this disk has changed since its proof goes no further', async (t) => {
  const folder = temporaryFolder(t);
  const destination = destinationOn(t, folder);
  const changed = fileOf(t, { ...BLOB, content: Buffer.alloc(BLOB.content.length, 'x') });
  const error = await refusalOf(t, () => destination.put(BLOB.address, changed, { signal: never, mends: false }));
  t.is(error?.errno, 'EBADMSG');
  t.deepEqual(filesIn(folder), []);
});

test('the reserve is left alone, and nothing is evicted for it', async (t) => {
  const { path } = await memoryDisk(t, 16 * MIB);
  const limits = { reserve: { percent: 50 }, limitBytes: undefined };
  const destination = destinationOn(t, path, { limits });
  const [first, second, third] = ['a', 'b', 'c'].map((seed) => blobOf(seed, 3 * MIB)) as [Blob, Blob, Blob];
  t.is(await put(t, destination, first), 'written');
  t.is(await put(t, destination, second), 'written');
  t.deepEqual(await destination.claim(third.address, never), { kind: 'full' });
  const error = await refusalOf(t, () => put(t, destination, third));
  t.is(error?.errno, 'ENOSPC');
  t.regex(error?.message ?? '', /^the destination dir:.* has no room for c\.sif: its file system has \d+ bytes free/);
  t.deepEqual(filesIn(path).sort(), [first, second].map(({ address }) => address.sha256).sort());
});

test('of writers at one time no more fit than the limit allows, whoever they are', async (t) => {
  const folder = temporaryFolder(t);
  const limits = { reserve: { bytes: 0 }, limitBytes: 5 * MIB };
  const blobs = Array.from({ length: 12 }, (_, seed) => blobOf(`x${seed}`, MIB));
  const nodes = [0, 1, 2].map(() => destinationOn(t, folder, { limits }));
  const outcomes = await Promise.allSettled(blobs.map((blob, index) => put(t, nodes[index % 3] ?? t.fail(), blob)));
  const written = outcomes.filter(({ status }) => status === 'fulfilled').length;
  t.is(publishedIn(folder).length, written);
  t.true(written <= 5, `${written} were written`);
  for (const outcome of outcomes) if (outcome.status === 'rejected') t.is(outcome.reason.errno, 'ENOSPC');
  // One after another, exactly so many fit.
  for (const blob of blobs) await put(t, nodes[0] ?? t.fail(), blob).catch(() => undefined);
  t.is(publishedIn(folder).length, 5);
  t.regex(
    (await refusalOf(t, () => put(t, nodes[1] ?? t.fail(), blobOf('y', MIB))))?.message ?? '',
    /--publish-size allows/,
  );
});

test('a disk that is full, or a quota on it, is told as such, and nothing is left of the try', async (t) => {
  const disks = [(await memoryDisk(t, 4 * MIB)).path, (await quotaDisk(t, 4 * MIB)).path];
  for (const path of disks) {
    const destination = destinationOn(t, path);
    const large = blobOf('large', 12 * MIB);
    const limits = { reserve: { bytes: -(2 ** 40) }, limitBytes: undefined };
    const unaware = destinationOn(t, path, { limits });
    const error = await refusalOf(t, () => put(t, unaware, large));
    t.is(error?.errno, 'ENOSPC', error?.message);
    t.deepEqual(filesIn(path), []);
    t.is(await put(t, destination, blobOf('small', MIB)), 'written');
  }
});

test('a read-only directory is told as such', async (t) => {
  const { path } = await memoryDisk(t, 4 * MIB);
  await execa('mount', ['-o', 'remount,ro', path]);
  const destination = destinationOn(t, path);
  t.is((await refusalOf(t, () => put(t, destination, BLOB)))?.errno, 'EROFS');
  t.is((await refusalOf(t, () => destination.claim(BLOB.address, never)))?.errno, 'EROFS');
});

test('a disk that does not answer is given up, refused while it hangs, and used again once it answers', async (t) => {
  const { path } = await ext4Disk(t, 64 * MIB);
  // By a patient one: on a busy machine a thread may take a second to start.
  await put(t, destinationOn(t, path), blobOf('first'));
  const destination = destinationOn(t, path, { idleTimeoutMs: 1000 });
  await execa('fsfreeze', ['--freeze', path]);
  t.teardown(() => execa('fsfreeze', ['--unfreeze', path], { reject: false }));
  const silent = await refusalOf(t, () => put(t, destination, BLOB));
  t.is(silent?.errno, 'EHOSTUNREACH');
  t.regex(silent?.message ?? '', /has not answered for 1 s$/);
  t.is((await refusalOf(t, () => destination.claim(BLOB.address, never)))?.errno, 'EHOSTUNREACH');
  await execa('fsfreeze', ['--unfreeze', path]);
  while ((await put(t, destination, BLOB).catch(() => undefined)) === undefined) await new Promise(setImmediate);
  t.deepEqual(publishedIn(path), [BLOB, blobOf('first')].map(({ address }) => address.sha256).sort());
});

test('no link below the directory leads anything that is written out of it', async (t) => {
  for (const name of ['blobs', `blobs/${BLOB.address.sha256.slice(0, 2)}`, 'incoming']) {
    const [folder, elsewhere] = [temporaryFolder(t), temporaryFolder(t)];
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    symlinkSync(elsewhere, join(folder, name));
    const destination = destinationOn(t, folder);
    t.truthy(await refusalOf(t, () => put(t, destination, BLOB)), name);
    t.deepEqual(filesIn(elsewhere), [], name);
  }
  const folder = temporaryFolder(t);
  const victim = fileOf(t, blobOf('victim'));
  mkdirSync(dirname(place(folder, BLOB)), { recursive: true });
  symlinkSync(victim, place(folder, BLOB));
  t.is(await put(t, destinationOn(t, folder), BLOB), 'written');
  t.true(readFileSync(victim).equals(blobOf('victim').content));
  t.true(readFileSync(place(folder, BLOB)).equals(BLOB.content));
});

test('it is one node’s turn at a time; the others see it end, and what came of it', async (t) => {
  const folder = temporaryFolder(t);
  const [one, two] = [destinationOn(t, folder), destinationOn(t, folder)];
  const first = await one.claim(BLOB.address, never);
  t.is(first.kind, 'ours');
  t.deepEqual(await two.claim(BLOB.address, never), { kind: 'taken' });
  t.deepEqual(await one.claim(BLOB.address, never), { kind: 'taken' }, 'nor is it twice its own');
  t.is((await two.claim(blobOf('other').address, never)).kind, 'ours');
  if (first.kind === 'ours') await first.release();
  const second = await two.claim(BLOB.address, never);
  t.is(second.kind, 'ours');
  await put(t, two, BLOB);
  t.deepEqual(await one.claim(BLOB.address, never), { kind: 'there' });
});

test('what a node holds ends with it', async (t) => {
  const folder = temporaryFolder(t);
  const [one, two] = [destinationOn(t, folder), destinationOn(t, folder)];
  await one.claim(BLOB.address, never);
  await one.close();
  t.is((await two.claim(BLOB.address, never)).kind, 'ours');
});

test('what a killed node was fetching or writing is taken over, and what it left is removed', async (t) => {
  const folder = temporaryFolder(t);
  const script = new URL('../support/killed-publisher.js', import.meta.url).pathname;
  const child = execa(process.execPath, [script, folder, BLOB.address.sha256], { reject: false });
  await new Promise((resolve) => child.stdout.once('data', resolve));
  const left = filesIn(join(folder, 'incoming'));
  t.is(left.length, 1);
  const destination = destinationOn(t, folder);
  t.deepEqual(await destination.claim(BLOB.address, never), { kind: 'taken' });
  child.kill('SIGKILL');
  await child;
  t.is((await destination.claim(BLOB.address, never)).kind, 'ours');
  t.false(await destination.has(BLOB.address, never));
  const long = new Date(Date.now() - 3_600_000);
  utimesSync(join(folder, 'incoming', left[0] ?? ''), long, long);
  t.is(await put(t, destination, BLOB), 'written');
  t.deepEqual(filesIn(join(folder, 'incoming')), []);
});

/** A process of another user that claims the blob and publishes it there. */
async function publishedByAnother(t: ExecutionContext, folder: string) {
  const path = fileOf(t, BLOB);
  chmodSync(dirname(path), 0o755);
  const script = new URL('../support/publishing-user.js', import.meta.url).pathname;
  const words = [script, folder, path, JSON.stringify(BLOB.address)];
  return await execa(process.execPath, words, { uid: 1000, gid: 1000, reject: false });
}

test('in a directory for everybody, what another user’s dead node has left is in nobody’s way', async (t) => {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o1777);
  const first = destinationOn(t, folder);
  await put(t, first, blobOf('first'));
  const script = new URL('../support/killed-publisher.js', import.meta.url).pathname;
  const child = execa(process.execPath, [script, folder, BLOB.address.sha256], { reject: false });
  await new Promise((resolve) => child.stdout.once('data', resolve));
  child.kill('SIGKILL');
  await child;
  const [left = ''] = filesIn(join(folder, 'incoming'));
  const long = new Date(Date.now() - 3_600_000);
  utimesSync(join(folder, 'incoming', left), long, long);
  const { exitCode, stdout, stderr } = await publishedByAnother(t, folder);
  t.is(exitCode, 0, stderr);
  t.is(stdout, 'ours written', stderr);
  t.true(readFileSync(place(folder, BLOB)).equals(BLOB.content));
});

test('in a directory for everybody, the turn of another user is respected also where nothing can be read of him', async (t) => {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o1777);
  t.is((await destinationOn(t, folder).claim(BLOB.address, never)).kind, 'ours');
  const [owner = ''] = filesIn(join(folder, 'leases', 'owners'));
  chmodSync(join(folder, 'leases', 'owners', owner), 0o600);
  const { exitCode, stdout, stderr } = await publishedByAnother(t, folder);
  t.is(exitCode, 0, stderr);
  t.is(stdout, 'taken written', stderr);
});

test('a directory that is not this user’s to write is named by its own path, with what to do', async (t) => {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o755);
  const { stderr, exitCode } = await publishedByAnother(t, folder);
  t.is(exitCode, 1);
  t.true(stderr.includes(`the destination dir:${folder} can't be used: EACCES`), stderr);
  t.regex(stderr, /mkdir '\.\.\.\/\w+'; let this user write there/);
});

test('a cache of tmaxfs is no destination, and neither is what is no folder', async (t) => {
  const cache = temporaryFolder(t);
  await BlobStore.open(cache);
  for (const [folder, errno] of [
    [cache, 'EINVAL'],
    [join(cache, 'CACHEDIR.TAG'), 'ENOTDIR'],
    [join(cache, 'none'), 'ENOTDIR'],
  ] as const) {
    t.is((await refusalOf(t, () => destinationOn(t, folder, { limits: NO_LIMITS }).check()))?.errno, errno);
  }
  await t.notThrowsAsync(() => destinationOn(t).check());
});
