import { once } from 'node:events';
import test from 'ava';
import {
  Measurements,
  measuredOpens,
  measuredProver,
  measuredSource,
} from '../../../src/daemon/metrics/measurements.js';
import type { HistogramTally } from '../../../src/daemon/metrics/tallies.js';
import { TmaxError } from '../../../src/errors.js';
import { blobOf, errnoOf, setUp, TestSource } from '../../support/blob-cache.js';

/** How many values each series has, by its labels. */
function countsOf(tally: HistogramTally): Record<string, number> {
  const counts = [...tally.series].map(({ labels, counts }): [string, number] => [
    Object.values(labels).filter(Boolean).join(' '),
    counts.reduce((sum, count) => sum + count, 0),
  ]);
  return Object.fromEntries(counts.filter(([, count]) => count > 0));
}

const LABEL = { variant: 'v', task: 't' };

test('an open is a hit, fetched, interrupted, or failed with its errno', async (t) => {
  const measurements = new Measurements();
  const { cache, source, add } = await setUp(t);
  const opens = measuredOpens(cache, measurements);
  const open = async (blob: ReturnType<typeof blobOf>, signal = new AbortController().signal) =>
    await opens.open(blob.address, LABEL, signal);
  const present = blobOf('a');
  add(present);
  (await open(present)).release();
  t.false(opens.open(present.address, LABEL, new AbortController().signal) instanceof Promise);
  t.deepEqual(countsOf(measurements.opens), { fetched: 1, hit: 1 });

  source.failure = new TmaxError('EHOSTUNREACH', 'nobody answers');
  t.is(await errnoOf(t, () => open(blobOf('b'))), 'EHOSTUNREACH');
  source.failure = undefined;
  source.gate = new Promise(() => undefined);
  const caller = new AbortController();
  const waiting = open(blobOf('c'), caller.signal);
  await once(source, 'download');
  caller.abort();
  t.is(await errnoOf(t, () => waiting), 'EINTR');
  t.deepEqual(countsOf(measurements.opens), { fetched: 1, hit: 1, interrupted: 1, 'failed EHOSTUNREACH': 1 });
  const { all, hits, waited } = measurements.latencies;
  t.is(all.percentiles(1)[0], waited.percentiles(1)[0] ?? Number.NaN, 'the fetch took longest');
  t.true((hits.percentiles(0.5)[0] ?? Number.NaN) < 1000);
});

test('an open that is refused at once has failed too', async (t) => {
  const measurements = new Measurements();
  const { cache, verdicts, add } = await setUp(t);
  const opens = measuredOpens(cache, measurements);
  const blob = blobOf('a');
  add(blob);
  verdicts.reason = 'broken';
  const open = async () => await opens.open(blob.address, LABEL, new AbortController().signal);
  t.is(await errnoOf(t, open), 'EBADMSG');
  t.throws(() => opens.open(blob.address, LABEL, new AbortController().signal), { instanceOf: TmaxError });
  t.deepEqual(countsOf(measurements.opens), { 'failed EBADMSG': 2 });
});

test('a download’s bytes, time and retries are its source’s', async (t) => {
  const measurements = new Measurements();
  class Halting extends TestSource {
    override async download(...[address, path, options]: Parameters<TestSource['download']>) {
      options.onProgress?.(200);
      options.onProgress?.(500);
      options.onRetry?.('cut off');
      const download = await super.download(address, path, options);
      return { ...download, resumedBytes: 100 };
    }
  }
  const source = new Halting();
  const { cache, open } = await setUp(t, { sources: [measuredSource(source, measurements)] });
  const blob = blobOf('a', 1000);
  source.contents.set(blob.address.sha256, blob.content);
  await open(blob);
  t.deepEqual([...measurements.receivedBytes.series], [{ labels: { source: 'test' }, value: 900 }]);
  t.is(measurements.retries.total, 1);
  t.deepEqual(countsOf(measurements.fetchSeconds), { 'test fetched': 1 });
  t.is([...measurements.fetchBytes.series][0]?.sum, 900);
  source.failure = new TmaxError('EHOSTUNREACH', 'nobody answers');
  t.is(await errnoOf(t, () => open(blobOf('b'))), 'EHOSTUNREACH');
  t.deepEqual(countsOf(measurements.fetchSeconds), { 'test fetched': 1, 'test failed': 1 });
  t.is(cache.counts().fetches.fetching, 0);
});

test('a proof is timed by its level and outcome', async (t) => {
  const measurements = new Measurements();
  const { prover, verdicts } = await setUp(t);
  const measured = measuredProver(prover, measurements);
  const verify = () =>
    measured.verify('/dev/null', { sizeBytes: 0, sha256: '' }, 'deep', { signal: new AbortController().signal });
  verdicts.reason = 'broken';
  await verify();
  verdicts.failure = new TmaxError('EIO', 'a bad disk');
  t.is(await errnoOf(t, verify), 'EIO');
  t.deepEqual(countsOf(measurements.verifications), { 'deep invalid': 1, 'deep failed': 1 });
});
