/** A blob is served for as long as its proof lies beside it, whoever puts it there or takes it away. */

import { existsSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import test from 'ava';
import * as v from 'valibot';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { RETRY_HOLD_MS } from '../../src/blobs/quarantine.js';
import { checkStored, type Prover } from '../../src/blobs/stored-blob-check.js';
import { TmaxError } from '../../src/errors.js';
import { verifyImage } from '../../src/verify/verify.js';
import { blobOf, blobPath, errnoOf, holds, proofPath, rot, setUp } from '../support/blob-cache.js';
import { tinyImage } from '../support/sif-writer.js';

const Proof = v.looseObject({
  level: v.string(),
  verifierVersion: v.number(),
  provenAt: v.string(),
  checkedAt: v.string(),
  architecture: v.string(),
  source: v.string(),
});
const readProof = (path: string) => v.parse(Proof, JSON.parse(readFileSync(path, 'utf8')));
const never = new AbortController().signal;

/** What `tmaxfs verify` does to a blob, from a process of its own: another store on the same folder. */
async function checkFromElsewhere(root: string, prover: Prover, blob: ReturnType<typeof blobOf>, level = 'structure') {
  const store = await BlobStore.existing(root);
  const environment = { store, prover, verifierVersion: 1, level: v.parse(v.picklist(['structure', 'deep']), level) };
  return await checkStored(environment, blob.address, never);
}

test('a proof tells level, verifier, dates, architecture and source', async (t) => {
  const { add, open, root } = await setUp(t, { verifierVersion: 7 });
  const blob = blobOf('a');
  add(blob);
  await open(blob);
  const proof = readProof(proofPath(root, blob));
  t.like(proof, { level: 'structure', verifierVersion: 7, architecture: 'amd64', source: 'test' });
  t.true(Math.abs(Date.parse(proof.provenAt) - Date.now()) < 60_000);
  t.is(proof.checkedAt, proof.provenAt);
});

test('a blob proven by an older verifier is proven again, by a newer one not', async (t) => {
  const first = await setUp(t, { verifierVersion: 2 });
  const blob = blobOf('a');
  first.add(blob);
  (await first.open(blob)).release();
  await first.cache.close();
  for (const [verifierVersion, proofs] of [
    [1, 0],
    [3, 1],
  ] as const) {
    const { open, verdicts, source, cache } = await setUp(t, { root: first.root, verifierVersion });
    (await open(blob)).release();
    t.is(verdicts.calls.length, proofs, `version ${verifierVersion}`);
    t.deepEqual(source.downloads, []);
    await cache.close();
  }
  t.is(readProof(proofPath(first.root, blob)).verifierVersion, 3);
});

test('a blob found damaged by another process is fetched anew at its next open', async (t) => {
  const { add, open, root, source, cache, prover } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  (await open(blob)).release();
  rot(root, blob);
  t.like(await checkFromElsewhere(root, prover, blob), { kind: 'damaged' });
  t.true(existsSync(blobPath(root, blob)), 'it evicts nothing itself');
  t.is(cache.state(blob.address.sha256).state, 'unproven');
  t.true(holds(await open(blob), blob));
  t.is(source.downloads.length, 2);
});

test('a blob found damaged while it is held open is refused to new opens, and fetched anew once it is closed', async (t) => {
  const { add, open, root, source, cache, prover } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  const held = await open(blob);
  rot(root, blob);
  await checkFromElsewhere(root, prover, blob);
  const error = await t.throwsAsync(open(blob), { instanceOf: TmaxError });
  t.is(error?.errno, 'EBADMSG');
  t.regex(error?.message ?? '', /a\.sif.*not what it was.*once they are closed/);
  t.is(source.downloads.length, 1);
  const state = cache.state(blob.address.sha256);
  t.is(state.state === 'quarantined' ? state.record.cause : state.state, 'disk');
  t.is(cache.statistics().use.leasedBlobs, 1, 'who has it open keeps it');
  held.release();
  t.true(holds(await open(blob), blob));
  t.is(source.downloads.length, 2);
});

test('a proof that was taken away without need is made anew, and those who hold the blob share it as before', async (t) => {
  const { add, open, root, source } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  const first = await open(blob);
  rmSync(proofPath(root, blob));
  const second = await open(blob);
  t.is(second.descriptor, first.descriptor);
  t.true(existsSync(proofPath(root, blob)));
  t.is(source.downloads.length, 1);
});

test('a stored blob that the disk can’t read any more is fetched anew', async (t) => {
  const { add, open, root, source, verdicts } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  (await open(blob)).release();
  rmSync(proofPath(root, blob));
  verdicts.failure = new TmaxError('EIO', 'i/o error');
  const opening = open(blob);
  source.once('download', () => {
    verdicts.failure = undefined;
  });
  t.true(holds(await opening, blob));
  t.is(source.downloads.length, 2);
});

test('checking leaves the time of last use as it was, and tells when it was done', async (t) => {
  const { add, open, root, cache } = await setUp(t);
  const blob = blobOf('a', 0, tinyImage(1));
  add(blob);
  (await open(blob)).release();
  await cache.close();
  const path = blobPath(root, blob);
  // Older than the modification: where the kernel counts reads as use at all, it would count this one.
  utimesSync(path, new Date(1000), statSync(path).mtime);
  const before = readProof(proofPath(root, blob));
  writeFileSync(proofPath(root, blob), JSON.stringify({ ...before, checkedAt: '2026-01-01T00:00:00.000Z' }));
  t.like(await checkFromElsewhere(root, { verify: verifyImage }, blob), { kind: 'sound' });
  t.is(statSync(path).atimeMs, 1000);
  t.true(Date.parse(readProof(proofPath(root, blob)).checkedAt) > Date.parse('2026-01-02'));
});

test('a deeper check is kept, a shallower one does not undo it', async (t) => {
  const { add, open, root, prover } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  (await open(blob)).release();
  await checkFromElsewhere(root, prover, blob, 'deep');
  t.is(readProof(proofPath(root, blob)).level, 'deep');
  await checkFromElsewhere(root, prover, blob, 'structure');
  t.is(readProof(proofPath(root, blob)).level, 'deep');
});

test('a record that was removed by another process is a new chance, in a running cache too', async (t) => {
  const { add, open, root, source, verdicts, cache } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  verdicts.reason = 'no superblock';
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  verdicts.reason = undefined;
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  rmSync(`${root}/quarantine/${blob.address.sha256}.json`);
  t.is(cache.state(blob.address.sha256).state, 'absent');
  t.deepEqual(cache.statistics().quarantine, []);
  t.true(holds(await open(blob), blob));
  t.is(source.downloads.length, 2);
});

test('a refusal that could not be written down is remembered all the same', async (t) => {
  const { add, open, root, source, verdicts } = await setUp(t);
  const blob = blobOf('a');
  add(blob);
  verdicts.reason = 'no superblock';
  rmSync(`${root}/quarantine`, { recursive: true });
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  t.is(source.downloads.length, 1);
});

test('a record tells cause, level, sha256, size, source and date, and holds no data', async (t) => {
  const { open, root, source } = await setUp(t);
  const blob = blobOf('a');
  source.contents.set(blob.address.sha256, Buffer.alloc(1000, 'wrong'));
  t.is(await errnoOf(t, () => open(blob)), 'EBADMSG');
  const text = readFileSync(`${root}/quarantine/${blob.address.sha256}.json`, 'utf8');
  t.like(JSON.parse(text), {
    cause: 'transfer',
    level: 'sha256',
    code: 'sha256-mismatch',
    sha256: blob.address.sha256,
    sizeBytes: 1000,
    source: 'test',
  });
  t.true(Date.now() - Date.parse(JSON.parse(text).refusedAt) < RETRY_HOLD_MS);
  t.false(text.includes('wrongwrong'));
});
