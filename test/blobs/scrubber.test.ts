/** The search for bit rot, under a clock that runs only while the scrubber waits. */

import { existsSync, readFileSync, statSync, utimesSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { type Clock, Scrubber } from '../../src/blobs/scrubber.js';
import { type Blob, blobOf, blobPath, holds, proofPath, rot, setUp } from '../support/blob-cache.js';

const MIB = 2 ** 20;
const DAY_MS = 86_400_000;

class BentClock implements Clock {
  #nowMs = Date.now();
  readonly waits: number[] = [];
  /** Called after each wait, before the scrubber goes on. */
  onWait: (() => void) | undefined;
  #until: { atMs: number; reached: () => void } | undefined;

  now(): number {
    return this.#nowMs;
  }

  async delay(milliseconds: number, signal: AbortSignal): Promise<void> {
    await setImmediate();
    // Time stands still where nobody lets it pass.
    while (this.#until === undefined || this.#until.atMs < this.#nowMs + milliseconds) {
      this.#until?.reached();
      signal.throwIfAborted();
      await setImmediate();
    }
    signal.throwIfAborted();
    this.waits.push(milliseconds);
    this.#nowMs += milliseconds;
    this.onWait?.();
  }

  /** Lets that much time pass, as fast as the scrubber waits it away. */
  async pass(milliseconds: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#until = { atMs: this.#nowMs + milliseconds, reached: resolve };
    });
  }
}

async function scrubbed(t: ExecutionContext, blobs: readonly Blob[], periodMs: number) {
  const before = await setUp(t);
  blobs.forEach(before.add);
  for (const blob of blobs) (await before.open(blob)).release();
  // A restart, so that nothing of the opens is still on its way.
  await before.cache.close();
  const { cache, add, open, root, lines, source } = await setUp(t, { root: before.root });
  blobs.forEach(add);
  const clock = new BentClock();
  const store = await BlobStore.open(root);
  const busy = { value: false };
  const watched = {
    isIdle: (sha256: string) => cache.isIdle(sha256),
    get isFetching() {
      return busy.value;
    },
    drop: cache.drop.bind(cache),
  };
  const log = pino({ level: 'silent' });
  const scrubber = new Scrubber({ store, cache: watched, periodMs, clock, log });
  t.teardown(() => scrubber.close());
  scrubber.start();
  const checkedAt = (blob: Blob): number =>
    Date.parse(String(JSON.parse(readFileSync(proofPath(root, blob), 'utf8')).checkedAt));
  return { cache, open, root, lines, source, clock, busy, scrubber, checkedAt };
}

test('every idle blob is hashed once a period, and not more often', async (t) => {
  const blobs = ['a', 'b', 'c'].map((seed) => blobOf(seed, 3 * MIB + 5));
  const { clock, scrubber } = await scrubbed(t, blobs, 30 * DAY_MS);
  await clock.pass(29 * DAY_MS);
  t.is(scrubber.statistics().checkedBlobs, 0, 'what was fetched is proven');
  await clock.pass(2 * DAY_MS);
  t.is(scrubber.statistics().checkedBlobs, 3);
  await clock.pass(28 * DAY_MS);
  t.is(scrubber.statistics().checkedBlobs, 3);
  await clock.pass(3 * DAY_MS);
  t.deepEqual(scrubber.statistics(), { checkedBlobs: 6, damagedBlobs: 0 });
  t.true(Math.max(...clock.waits) <= 3_600_000, 'no wait that a timer can’t keep');
});

test('the one that was checked longest ago comes first, and the dates are kept', async (t) => {
  const blobs = ['a', 'b', 'c'].map((seed) => blobOf(seed, MIB));
  const { clock, checkedAt, scrubber } = await scrubbed(t, blobs, DAY_MS);
  const before = blobs.map(checkedAt);
  t.true(before.every((at, index) => at >= (before[index - 1] ?? 0)));
  await clock.pass(DAY_MS + 3_600_000 + 120_000);
  t.is(scrubber.statistics().checkedBlobs, 3);
  const after = blobs.map(checkedAt);
  t.true(
    after.every((at, index) => at > (after[index - 1] ?? 0) && at > (before[index] ?? 0) + DAY_MS),
    String(after),
  );
});

test('reading is spread out: 64 KiB a second for a small cache, 64 MiB a second at most', async (t) => {
  const blobs = [blobOf('a', 8 * MIB)];
  const slow = await scrubbed(t, blobs, 30 * DAY_MS);
  await slow.clock.pass(30 * DAY_MS + 3_700_000);
  t.is(slow.clock.waits.filter((wait) => wait === 16_000).length, 8, 'a piece of 1 MiB each 16 seconds');
  const fast = await scrubbed(t, blobs, 1);
  await fast.clock.pass(5000);
  t.true(fast.scrubber.statistics().checkedBlobs > 1);
  t.is(Math.min(...fast.clock.waits), 1000 / 64);
});

test('a damaged blob is dropped with a warning, and fetched anew at its next open', async (t) => {
  const [bad, good] = [blobOf('bad', 2 * MIB), blobOf('good', 2 * MIB)] as const;
  const { clock, root, lines, cache, open, source, scrubber } = await scrubbed(t, [bad, good], DAY_MS);
  rot(root, bad, MIB + 7);
  await clock.pass(DAY_MS + 3_700_000);
  t.deepEqual(scrubber.statistics(), { checkedBlobs: 2, damagedBlobs: 1 });
  t.false(existsSync(blobPath(root, bad)));
  t.is(cache.state(bad.address.sha256).state, 'absent');
  const warning = lines.find(({ blob, level }) => blob === bad.address.sha256 && level === 40);
  t.regex(String(warning?.['msg']), /damaged.*sha256.*fetched anew/);
  t.is(cache.state(good.address.sha256).state, 'ready');
  t.true(holds(await open(bad), bad));
  t.deepEqual(source.downloads, ['bad.sif']);
});

test('what is held open is left alone until it is idle, and then has its turn', async (t) => {
  const blob = blobOf('a', MIB);
  const { clock, open, scrubber } = await scrubbed(t, [blob], DAY_MS);
  const lease = await open(blob);
  await clock.pass(2 * DAY_MS);
  t.is(scrubber.statistics().checkedBlobs, 0);
  lease.release();
  await clock.pass(2 * 3_600_000);
  t.is(scrubber.statistics().checkedBlobs, 1);
});

test('it rests while fetches run, also in the middle of a blob', async (t) => {
  const blob = blobOf('a', 8 * MIB);
  const { clock, busy, scrubber } = await scrubbed(t, [blob], DAY_MS);
  clock.onWait = () => {
    if (clock.waits.filter((wait) => wait === 16_000).length === 3) busy.value = true;
  };
  await clock.pass(DAY_MS + 2 * 3_600_000);
  t.is(scrubber.statistics().checkedBlobs, 0);
  clock.onWait = undefined;
  busy.value = false;
  await clock.pass(300_000);
  t.is(scrubber.statistics().checkedBlobs, 1);
});

test('the time of last use stays as it was', async (t) => {
  const blob = blobOf('a', MIB);
  const { clock, root, scrubber } = await scrubbed(t, [blob], DAY_MS);
  utimesSync(blobPath(root, blob), new Date(1000), statSync(blobPath(root, blob)).mtime);
  await clock.pass(2 * DAY_MS);
  t.is(scrubber.statistics().checkedBlobs, 1);
  t.is(statSync(blobPath(root, blob)).atimeMs, 1000);
});
