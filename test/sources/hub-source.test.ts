import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { FakeHub } from '../../src/demo/fake-hub.js';
import { TmaxError } from '../../src/errors.js';
import { HubSource, type HubSourceSettings } from '../../src/sources/hub-source.js';
import type { Download, DownloadOptions } from '../../src/sources/source.js';
import { hubSettings, IMPATIENT, QUICK_RETRY, recordingLog, startHub } from '../support/hub.js';
import { temporaryFolder } from '../support/temporary.js';
import { addressOf, imageOf, patternBytes } from '../support/transfers.js';

/** More than one piece, so that a large one comes over several connections. */
const LARGE = imageOf('images/large.sif', patternBytes(20_000_000));
const SMALL = imageOf('images/small.sif', patternBytes(50_000, 2));
const FILES = [LARGE, SMALL];

function source(t: ExecutionContext, hub: FakeHub, changes: Partial<HubSourceSettings> = {}): HubSource {
  const one = new HubSource({ ...hubSettings(hub.endpoint), connectionsPerBlob: 3, retry: QUICK_RETRY, ...changes });
  t.teardown(() => one.close());
  return one;
}

async function fetchInto(
  hub: FakeHub,
  from: HubSource,
  file: typeof LARGE,
  path: string,
  options: Partial<DownloadOptions> = {},
): Promise<Download> {
  return from.download(addressOf(hub, file), path, { signal: new AbortController().signal, ...options });
}

test('several blobs come at once, each whole, with progress up to its size', async (t) => {
  const hub = await startHub(t, FILES);
  const folder = await temporaryFolder(t);
  const hubSource = source(t, hub);
  t.is(hubSource.name, 'hub');
  const fetched = await Promise.all(
    FILES.map(async (file, index) => {
      const progress: number[] = [];
      const path = join(folder, String(index));
      const download = await fetchInto(hub, hubSource, file, path, { onProgress: (bytes) => progress.push(bytes) });
      t.true((await readFile(path)).equals(Buffer.isBuffer(file.body) ? file.body : Buffer.alloc(0)));
      t.is(progress.at(-1), file.sizeBytes);
      return download;
    }),
  );
  t.deepEqual(
    fetched.map(({ sha256 }) => sha256),
    [LARGE.sha256, SMALL.sha256],
  );
  t.deepEqual(
    fetched.map(({ attempts }) => attempts),
    [3, 1],
  );
  t.is(hub.requests.filter(({ server }) => server === 'hub').length, 2);
});

test('a fault is logged with what was fetched and why it is tried again', async (t) => {
  const hub = await startHub(t, FILES);
  const { log, lines } = recordingLog();
  hub.fault({ fault: { kind: 'status', status: 503 }, server: 'cdn' });
  await fetchInto(hub, source(t, hub, { log }), SMALL, join(await temporaryFolder(t), 'partial'));
  t.is(lines.length, 1);
  t.like(lines[0], { path: SMALL.path, sha256: SMALL.sha256, attempt: 1 });
  t.regex(String(lines[0]?.['reason']), /answers 503/);
});

test('an error that ends a transfer is a TmaxError of the Hub, with its reason', async (t) => {
  const hub = await startHub(t, FILES);
  const from = source(t, hub, IMPATIENT);
  hub.fault({ fault: { kind: 'html' }, server: 'cdn', requests: 'every' });
  const partial = join(await temporaryFolder(t), 'partial');
  const error = await t.throwsAsync(fetchInto(hub, from, SMALL, partial), { instanceOf: TmaxError });
  t.is(error.errno, 'EBADMSG');
  t.is(error.source, 'hub');
  t.regex(error.message, /login page.*given up after 4 attempts/);
  const nowhere = join(partial, 'below', 'a file');
  t.is((await t.throwsAsync(fetchInto(hub, from, SMALL, nowhere), { instanceOf: TmaxError })).errno, 'EIO');
});

test('an aborted transfer of several connections leaves a prefix, and the next one resumes it', async (t) => {
  const hub = await startHub(t, FILES);
  const from = source(t, hub);
  const partial = join(await temporaryFolder(t), 'partial');
  const controller = new AbortController();
  const stall = hub.fault({ fault: { kind: 'stall', afterBytes: 3_000_000 }, server: 'cdn', requests: 'every' });
  const onProgress = (bytes: number) => bytes === 3_000_000 && controller.abort();
  const error = await t.throwsAsync(fetchInto(hub, from, LARGE, partial, { signal: controller.signal, onProgress }));
  t.is(error instanceof TmaxError && error.errno, 'EINTR');
  t.is((await stat(partial)).size, 3_000_000);
  stall.remove();
  const download = await fetchInto(hub, from, LARGE, partial);
  t.is(download.resumedBytes, 3_000_000);
  t.is(download.sha256, LARGE.sha256);
});

test('an abort before the start sends nothing', async (t) => {
  const hub = await startHub(t, FILES);
  const signal = AbortSignal.abort();
  const partial = join(await temporaryFolder(t), 'partial');
  const error = await t.throwsAsync(fetchInto(hub, source(t, hub), SMALL, partial, { signal }));
  t.is(error instanceof TmaxError && error.errno, 'EINTR');
  t.is(hub.requests.all.length, 0);
});
