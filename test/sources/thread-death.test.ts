/** What becomes of a transfer whose thread dies, as by an error that a library does not catch. */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Worker } from 'node:worker_threads';
import test, { type ExecutionContext } from 'ava';
import { TmaxError } from '../../src/errors.js';
import { HubSource } from '../../src/sources/hub-source.js';
import { RateGovernor } from '../../src/sources/rate-governor.js';
import { hubSettings, QUICK_RETRY, recordingLog, startHub } from '../support/hub.js';
import { temporaryFolder } from '../support/temporary.js';
import { addressOf, imageOf, patternBytes } from '../support/transfers.js';

const IMAGE = imageOf('images/a.sif', patternBytes(200_000));
const STALL = { server: 'cdn', fault: { kind: 'stall', afterBytes: 20_000 } } as const;
const DIED = 'a fetch thread died and is replaced';

/** A download whose thread is ended each time that more bytes are on disk, as often as wanted. */
async function setUp(t: ExecutionContext, { stalls, deaths }: { stalls: 'every' | readonly number[]; deaths: number }) {
  const hub = await startHub(t, [IMAGE]);
  hub.fault({ ...STALL, requests: stalls });
  const { log, lines } = recordingLog();
  const source = new HubSource(
    { ...hubSettings(hub.endpoint), threads: 1, retry: QUICK_RETRY, log },
    new RateGovernor(),
  );
  t.teardown(() => source.close());
  const threads: Worker[] = [];
  const note = (thread: Worker) => threads.push(thread);
  process.on('worker', note);
  t.teardown(() => process.off('worker', note));
  const partial = join(await temporaryFolder(t), 'partial');
  let left = deaths;
  let seenBytes = 0;
  const onProgress = (bytes: number): void => {
    if (bytes <= seenBytes || left === 0) return;
    seenBytes = bytes;
    left -= 1;
    void threads.at(-1)?.terminate();
  };
  const reasons: string[] = [];
  const onRetry = (reason: string) => reasons.push(reason);
  const fetched = source.download(addressOf(hub, IMAGE), partial, {
    signal: new AbortController().signal,
    onProgress,
    onRetry,
  });
  return { hub, fetched, partial, lines, reasons, threads };
}

test.serial('it goes on in another, from what is on disk', async (t) => {
  const { fetched, partial, lines, reasons, threads } = await setUp(t, { stalls: [1], deaths: 1 });
  const { resumedBytes, sha256 } = await fetched;
  t.is(resumedBytes, 20_000);
  t.is(sha256, IMAGE.sha256);
  t.deepEqual(await readFile(partial), IMAGE.body);
  t.is(threads.length, 2);
  t.is(lines.filter(({ msg }) => msg === DIED).length, 1);
  t.regex(reasons.join(), /^the thread that was fetching images\/a\.sif died: /);
});

test.serial('it fails where each thread that takes it up dies too', async (t) => {
  const { fetched, lines, threads } = await setUp(t, { stalls: 'every', deaths: Number.POSITIVE_INFINITY });
  const error = await t.throwsAsync(fetched, { instanceOf: TmaxError });
  t.is(error.errno, 'EIO');
  t.regex(error.message, /^the thread that was fetching images\/a\.sif died: /);
  t.is(lines.filter(({ msg }) => msg === DIED).length, 3);
  t.true(threads.length >= 3);
});
