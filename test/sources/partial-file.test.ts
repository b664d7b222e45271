import { readFile, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { TmaxError } from '../../src/errors.js';
import { MAX_UNWRITTEN_BYTES, MAX_UNWRITTEN_CHUNKS } from '../../src/sources/limits.js';
import { PartialFile } from '../../src/sources/partial-file.js';
import { isComplete, type Piece, PieceWindow } from '../../src/sources/piece-window.js';
import { temporaryFolder } from '../support/temporary.js';
import { patternBytes, sha256Of } from '../support/transfers.js';

const BYTES = patternBytes(10_000);
const quiet = () => new AbortController().signal;

async function partialPath(t: ExecutionContext, content?: Buffer): Promise<string> {
  const path = join(await temporaryFolder(t), 'partial');
  if (content !== undefined) await writeFile(path, content);
  return path;
}

test('what is appended is in the file, in order, with its digest, for its owner alone', async (t) => {
  const path = await partialPath(t);
  const written: number[] = [];
  const file = await PartialFile.open(path, {
    sizeBytes: BYTES.length,
    signal: quiet(),
    onWritten: (n) => written.push(n),
  });
  for (let at = 0; at < BYTES.length; at += 7) file.append(BYTES.subarray(at, at + 7));
  t.is(file.acceptedBytes, BYTES.length);
  await file.close();
  t.deepEqual(await readFile(path), BYTES);
  t.is(file.digest(), sha256Of(BYTES));
  t.is((await stat(path)).mode & 0o777, 0o600);
  t.is(written.at(-1), BYTES.length);
});

test('a prefix is resumed and counted into the digest', async (t) => {
  const path = await partialPath(t, BYTES.subarray(0, 4000));
  const file = await PartialFile.open(path, { sizeBytes: BYTES.length, signal: quiet() });
  t.is(file.resumedBytes, 4000);
  file.append(BYTES.subarray(4000));
  await file.close();
  t.is(file.digest(), sha256Of(BYTES));
  t.deepEqual(await readFile(path), BYTES);
});

test('a file that is longer than the whole is begun anew', async (t) => {
  const path = await partialPath(t, BYTES);
  const file = await PartialFile.open(path, { sizeBytes: 5000, signal: quiet() });
  t.is(file.resumedBytes, 0);
  file.append(BYTES.subarray(0, 5000));
  await file.close();
  t.deepEqual(await readFile(path), BYTES.subarray(0, 5000));
});

test('a link in the place of the file is not followed', async (t) => {
  const path = await partialPath(t, BYTES);
  await symlink(path, `${path}.link`);
  const opened = PartialFile.open(`${path}.link`, { sizeBytes: 1, signal: quiet() });
  t.is((await t.throwsAsync(opened, { instanceOf: TmaxError })).errno, 'EIO');
  t.is((await stat(path)).size, BYTES.length);
  const folder = PartialFile.open('/dev/null', { sizeBytes: 1, signal: quiet() });
  t.is((await t.throwsAsync(folder, { instanceOf: TmaxError })).errno, 'EIO');
});

test('who appends faster than the disk writes is held back', async (t) => {
  const path = await partialPath(t);
  const chunk = Buffer.alloc(1024 * 1024, 3);
  const file = await PartialFile.open(path, { sizeBytes: 64 * chunk.length, signal: quiet() });
  let unwritten = 0;
  let patience: Promise<void> | undefined;
  while (patience === undefined) {
    patience = file.append(chunk);
    unwritten += chunk.length;
  }
  t.true(unwritten > MAX_UNWRITTEN_BYTES && unwritten <= MAX_UNWRITTEN_BYTES + 2 * chunk.length);
  await patience;
  t.is((await stat(path)).size, unwritten);
  await file.close();
});

test('who appends in tiny chunks is held back by their number', async (t) => {
  const path = await partialPath(t);
  const file = await PartialFile.open(path, { sizeBytes: MAX_UNWRITTEN_BYTES, signal: quiet() });
  let patience: Promise<void> | undefined;
  let appended = 0;
  for (; patience === undefined && appended <= 2 * MAX_UNWRITTEN_CHUNKS; appended += 1) {
    patience = file.append(Buffer.of(1));
  }
  t.true(appended <= MAX_UNWRITTEN_CHUNKS + 2);
  await patience;
  t.is((await stat(path)).size, appended);
  await file.close();
});

test('what waits for its turn keeps no chunk that it came in', async (t) => {
  const bytes = BYTES.subarray(0, 1000);
  const path = await partialPath(t);
  const file = await PartialFile.open(path, { sizeBytes: bytes.length, signal: quiet() });
  const tail = { bytes: 100, onComplete: () => {} };
  const window = new PieceWindow(file, { sizeBytes: bytes.length, pieceBytes: 500, maxPieces: 2, tail });
  const [last, head, second] = [await window.take(quiet()), await window.take(quiet()), await window.take(quiet())];
  for (const piece of [last, second, head]) {
    if (piece === undefined) break;
    const chunk = Buffer.from(bytes.subarray(piece.start, piece.end));
    await window.put(piece, chunk);
    if (piece !== head) chunk.fill(0);
  }
  await file.close();
  t.is(file.digest(), sha256Of(bytes));
});

test('an abort ends the reading of a long prefix', async (t) => {
  const path = await partialPath(t, Buffer.alloc(0));
  await truncate(path, 100_000_000);
  const controller = new AbortController();
  controller.abort();
  const opened = PartialFile.open(path, { sizeBytes: 100_000_000, signal: controller.signal });
  t.is((await t.throwsAsync(opened, { instanceOf: TmaxError })).errno, 'EINTR');
  t.is((await stat(path)).size, 100_000_000);
});

test('pieces that arrive in any order make one file, and never more than the window is outstanding', async (t) => {
  const folder = await temporaryFolder(t);
  let run = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 4 }),
      fc.integer({ min: 1, max: 300 }),
      fc.integer({ min: 0, max: 998 }),
      fc.integer({ min: 0, max: 300 }),
      fc.infiniteStream(fc.nat()),
      async (connections, pieceBytes, resumedBytes, tailBytes, choices) => {
        run += 1;
        const bytes = BYTES.subarray(0, 1000);
        const path = join(folder, String(run));
        await writeFile(path, bytes.subarray(0, resumedBytes));
        const file = await PartialFile.open(path, { sizeBytes: bytes.length, signal: quiet() });
        const tails: Buffer[] = [];
        const onComplete = (early: SharedArrayBuffer) => tails.push(Buffer.from(early));
        const length = Math.min(tailBytes, bytes.length - resumedBytes - 1);
        const tail = length === 0 ? undefined : { bytes: length, onComplete };
        const window = new PieceWindow(file, { sizeBytes: bytes.length, pieceBytes, maxPieces: connections, tail });
        const next = (below: number) => Number(choices.next().value) % below;
        const open: Piece[] = [];
        while (file.acceptedBytes < bytes.length) {
          // A piece of the window is taken whenever there is room, as its connections would.
          while (window.outstanding < connections && window.hasMore) {
            const piece = await window.take(quiet());
            if (piece !== undefined) open.push(piece);
          }
          const index = next(open.length);
          const piece = open[index];
          if (piece === undefined) break;
          const from = piece.start + piece.received;
          await window.put(piece, bytes.subarray(from, Math.min(piece.end, from + 1 + next(pieceBytes))));
          if (isComplete(piece)) open.splice(index, 1);
        }
        await file.close();
        t.is(file.digest(), sha256Of(bytes));
        t.true((await readFile(path)).equals(bytes));
        // Told once at most, and not where its turn came before all of it had come.
        t.true(tails.length <= 1);
        t.true(tails.every((early) => early.equals(bytes.subarray(bytes.length - length))));
      },
    ),
    { numRuns: 100 },
  );
});
