/** Daemons of two users on one cache directory that their group shares, each a process of its own. */

import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { blobOf, blobPath } from '../support/blob-cache.js';
import { ANNA, as, BERT, GROUP, groupFolder } from '../support/group.js';
import { eventually } from '../support/mount-client.js';
import { packagePath } from '../support/paths.js';
import { CacheProcess } from '../support/shared-cache-process.js';

const MIB = 2 ** 20;
/** Of the C library: what flock(2) fails with where a file system has none. */
const EOPNOTSUPP = '95';

for (const [form, ...without] of [
  ['kernel locks'],
  ['lease files', packagePath('test', 'support', 'without-flock'), EOPNOTSUPP],
]) {
  /** Anna lets nobody in by her umask. */
  const daemons = async (t: ExecutionContext, limitBytes: number) => {
    const root = groupFolder(t);
    const limits = { limitBytes, reserveFreeBytes: 0, leasePatienceMs: 20 };
    const options = { root, limits, isShared: true };
    const anna = await CacheProcess.start(t, options, [...as(ANNA, GROUP, '077'), ...without]);
    const bert = await CacheProcess.start(t, options, [...as(BERT), ...without]);
    t.is(existsSync(join(root, 'locks', 'owners')), form === 'lease files');
    return { root, anna, bert };
  };

  const checkBlob = (t: ExecutionContext, root: string, seed: string, sizeBytes: number, uid: number) => {
    const blob = blobOf(seed, sizeBytes);
    const path = blobPath(root, blob);
    const stats = statSync(path);
    t.deepEqual([stats.uid, stats.gid, stats.mode & 0o777], [uid, GROUP, 0o444]);
    t.true(readFileSync(path).equals(blob.content));
  };

  const reserved = (root: string) =>
    readdirSync(join(root, 'reservations')).filter((name) => name.startsWith('fetch.')).length;

  test(`${form}: two users wait for one fetch, and read the one file`, async (t) => {
    const { root, anna, bert } = await daemons(t, 4 * MIB);
    const finish = await anna.openHalf('both', 3 * MIB);
    const waiting = bert.open('both', 3 * MIB);
    await eventually('the other waits for it too', () => reserved(root) === 2 || undefined);
    t.is(await finish(), undefined);
    t.is(await waiting, undefined);
    checkBlob(t, root, 'both', 3 * MIB, ANNA);
  });

  test(`${form}: what a user's killed daemon has begun another user fetches to the end`, async (t) => {
    const { root, anna, bert } = await daemons(t, 4 * MIB);
    await anna.openHalf('both', 3 * MIB);
    await anna.kill();
    t.is(await bert.open('both', 3 * MIB), undefined);
    checkBlob(t, root, 'both', 3 * MIB, BERT);
    t.deepEqual(readdirSync(join(root, 'partial')), []);
    t.is(reserved(root), 0);
  });

  test(`${form}: one limit holds over both users; each evicts what the other has brought, and nothing that is open`, async (t) => {
    const { root, anna, bert } = await daemons(t, 3 * MIB);
    const isThere = (seed: string) => existsSync(blobPath(root, blobOf(seed, MIB)));
    for (const seed of ['anna 1', 'anna 2', 'anna 3']) t.is(await anna.open(seed, MIB), undefined);
    t.is(await bert.open('bert 1', MIB), 'ENOSPC', 'all of it is open');
    await anna.release('anna 1');
    t.is(await bert.open('bert 1', MIB), undefined);
    t.deepEqual(['anna 1', 'anna 2', 'anna 3', 'bert 1'].map(isThere), [false, true, true, true]);
    await bert.release('bert 1');
    t.is(await anna.open('anna 4', MIB), undefined);
    t.deepEqual(['anna 2', 'anna 3', 'bert 1', 'anna 4'].map(isThere), [true, true, false, true]);
    t.is(await bert.open('anna 2', MIB), undefined, 'another user’s is there for who asks');
    checkBlob(t, root, 'anna 2', MIB, ANNA);
  });
}

test('what was killed right before its publication, or right after its making, keeps nobody of the group from it for ever', async (t) => {
  const root = groupFolder(t);
  const options = { root, limits: { limitBytes: 4 * MIB, reserveFreeBytes: 0, leasePatienceMs: 20 }, isShared: true };
  const anna = await CacheProcess.start(t, options, as(ANNA));
  const { address } = blobOf('both', MIB);
  const partial = join(root, 'partial', address.sha256);
  const [file = '', ...args] = as(BERT, GROUP, '077');
  const left = async (path: string) => {
    await execa(file, [...args, 'touch', '-d', '1 hour ago', path]);
    t.is(lstatSync(path).mode & 0o777, 0o600);
  };
  await left(partial);
  const lock = join(root, 'reservations', 'lock');
  await execa('rm', ['-f', lock]);
  await left(lock);
  t.is(await anna.open('both', MIB), undefined);
  t.is(statSync(blobPath(root, blobOf('both', MIB))).uid, ANNA);
});

test('what nobody of ours has put into a shared cache stays there, in the way of nobody', async (t) => {
  const root = groupFolder(t);
  const options = { root, limits: { limitBytes: 4 * MIB, reserveFreeBytes: 0, leasePatienceMs: 20 }, isShared: true };
  await (await CacheProcess.start(t, options, as(ANNA))).kill();
  const strays = [
    'blobs/notes',
    'blobs/ab/notes',
    'proofs/ab/notes',
    'partial/notes',
    'quarantine/notes',
    'catalog/notes',
  ];
  const [file = '', ...args] = as(BERT);
  // A temporary that another user has left in the root is that user's to remove.
  const temporary = 'CACHEDIR.TAG.0123456789ab.tmp';
  const paths = [...strays, temporary].map((name) => join(root, name));
  await execa(file, [...args, 'touch', '-d', '1 hour ago', ...paths]);
  const anna = await CacheProcess.start(t, options, as(ANNA));
  t.is(await anna.open('a', MIB), undefined);
  t.deepEqual(
    paths.filter((path) => !existsSync(path)),
    [],
  );
});

test('a verification by apptainer, whose reading can’t be undone on another user’s image, is as good as any', async (t) => {
  const root = groupFolder(t);
  const options = { root, limits: { limitBytes: 4 * MIB, reserveFreeBytes: 0, leasePatienceMs: 20 }, isShared: true };
  const anna = await CacheProcess.start(t, options, as(ANNA));
  t.is(await anna.open('a', MIB), undefined);
  const { address } = blobOf('a', MIB);
  const module = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
  const script = `
    import { BlobStore } from ${module('../../src/blobs/blob-store.js')};
    import { checkStored } from ${module('../../src/blobs/stored-blob-check.js')};
    const store = await BlobStore.existing(${JSON.stringify(root)}, { isShared: true });
    const verify = async () => ({ outcome: 'valid', level: 'inspect', architecture: 'amd64', warnings: [] });
    const environment = { store, prover: { verify }, verifierVersion: 1, level: 'inspect' };
    const { kind } = await checkStored(environment, ${JSON.stringify(address)}, new AbortController().signal);
    process.stdout.write(kind + ' ' + store.proofs.read(${JSON.stringify(address.sha256)}).level);
  `;
  const [file = '', ...args] = as(BERT);
  const { stdout } = await execa(file, [...args, process.execPath, '--input-type=module', '--eval', script]);
  t.is(stdout, 'sound inspect');
});

for (const [place, mode] of [
  ['reservations/lock', 0o600],
  [`partial/${blobOf('a', MIB).address.sha256}`, 0o600],
  [`partial/${blobOf('a', MIB).address.sha256}`, 0o444],
] as const) {
  test(`a user’s file of mode ${mode.toString(8)} that others have linked to ${place.slice(0, 17)} stays what it is`, async (t) => {
    const root = groupFolder(t);
    const options = { root, limits: { limitBytes: 4 * MIB, reserveFreeBytes: 0, leasePatienceMs: 20 }, isShared: true };
    const bert = await CacheProcess.start(t, options, as(BERT));
    const file = join(dirname(root), 'file');
    writeFileSync(file, 'precious');
    chownSync(file, BERT, BERT);
    chmodSync(file, mode);
    rmSync(join(root, place), { force: true });
    linkSync(file, join(root, place));
    t.is(await bert.open('a', MIB), undefined);
    t.is(readFileSync(file, 'utf8'), 'precious');
    const { mode: now, nlink } = statSync(file);
    t.deepEqual([now & 0o777, nlink], [mode, 1]);
  });
}
