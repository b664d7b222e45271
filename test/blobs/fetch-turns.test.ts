/** How long another node is waited for, whatever its destination answers. */

import test from 'ava';
import fc from 'fast-check';
import { FetchTurns } from '../../src/blobs/fetch-turns.js';
import type { Claim, Destination } from '../../src/destinations/destination.js';
import { TmaxError } from '../../src/errors.js';
import { blobOf } from '../support/blob-cache.js';
import { recordingLog } from '../support/hub.js';

const { signal } = new AbortController();
const OPEN_TIMEOUT_MS = 540_000;

function turnsAt(claim: () => Claim, openTimeoutMs = OPEN_TIMEOUT_MS) {
  const destination: Destination = {
    name: 'shared',
    claim: async () => claim(),
    has: async () => false,
    put: async () => 'written',
    close: async () => {},
  };
  const { log, lines } = recordingLog();
  return { turns: new FetchTurns({ destinations: [destination], openTimeoutMs, log }), lines };
}

test('a turn that never comes is waited for less than half of an open, in looks that are never far apart', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 4 * 2 ** 30 }),
      fc.integer({ min: 2000, max: 3_600_000 }),
      async (sizeBytes, openTimeoutMs) => {
        const { turns } = turnsAt(() => ({ kind: 'taken' }), openTimeoutMs);
        const blob = { ...blobOf('a').address, sizeBytes };
        let waitedMs = 0;
        for (;;) {
          const turn = await turns.next(blob, waitedMs, signal);
          if (turn.kind === 'go') break;
          t.true(turn.afterMs >= 300 && turn.afterMs <= 5000, `${turn.afterMs}`);
          t.true(turn.afterMs <= 650 + waitedMs * 0.32, `${turn.afterMs} after ${waitedMs}`);
          waitedMs += turn.afterMs;
        }
        t.true(waitedMs >= Math.min(60_000, openTimeoutMs / 2), `${waitedMs}`);
        t.true(waitedMs <= openTimeoutMs / 2 + 5000, `${waitedMs}`);
      },
    ),
    { numRuns: 50 },
  );
});

test('who can’t be told whose turn it is goes on at once', async (t) => {
  const blob = blobOf('a').address;
  for (const kind of ['full', 'there'] as const) {
    const turn = await turnsAt(() => ({ kind })).turns.next(blob, 0, signal);
    t.like(turn, { kind: 'go', foundAt: kind === 'there' ? 'shared' : undefined });
  }
  const failing = turnsAt(() => {
    throw new TmaxError('EHOSTUNREACH', 'does not answer');
  });
  t.like(await failing.turns.next(blob, 0, signal), { kind: 'go', foundAt: undefined });
  const { log } = recordingLog();
  const alone = new FetchTurns({ destinations: [], openTimeoutMs: OPEN_TIMEOUT_MS, log });
  t.like(await alone.next(blob, 0, signal), { kind: 'go' });
});

test('a turn is given back where it was got, and being called off is no answer', async (t) => {
  const blob = blobOf('a').address;
  let released = 0;
  const release = async () => {
    released += 1;
  };
  const turn = await turnsAt(() => ({ kind: 'ours', release })).turns.next(blob, 0, signal);
  t.is(turn.kind, 'go');
  if (turn.kind === 'go') turn.end();
  t.is(released, 1);
  const calledOff = turnsAt(() => {
    throw new TmaxError('EINTR', 'called off');
  });
  await t.throwsAsync(calledOff.turns.next(blob, 0, signal), { message: 'called off' });
});
