import { readdirSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { FakeHub } from '../../src/demo/fake-hub.js';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { type FakeFile, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { TmaxError } from '../../src/errors.js';
import { HubSource, type HubSourceSettings } from '../../src/sources/hub-source.js';
import { RateGovernor } from '../../src/sources/rate-governor.js';
import type { Download, DownloadOptions } from '../../src/sources/source.js';
import { hubSettings, QUICK_RETRY, REPOSITORY, recordingLog, startHub } from '../support/hub.js';
import { eventually } from '../support/mount-client.js';
import { temporaryFolder } from '../support/temporary.js';
import { addressOf, imageOf, patternBytes } from '../support/transfers.js';

/** More than one piece, so that a large one comes over several connections. */
const LARGE = imageOf('images/large.sif', patternBytes(20_000_000));
const SMALL = imageOf('images/small.sif', patternBytes(50_000, 2));
const FILES = [LARGE, SMALL];

function source(
  t: ExecutionContext,
  hub: FakeHub,
  changes: Partial<HubSourceSettings> = {},
  governor = new RateGovernor(),
): HubSource {
  const defaults = { ...hubSettings(hub.endpoint), connectionsPerBlob: 3, threads: 2, retry: QUICK_RETRY };
  const one = new HubSource({ ...defaults, ...changes }, governor);
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
    [5, 1],
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
  const from = source(t, hub);
  hub.fault({ fault: { kind: 'html' }, server: 'cdn', requests: 'every' });
  const partial = join(await temporaryFolder(t), 'partial');
  const error = await t.throwsAsync(fetchInto(hub, from, SMALL, partial), { instanceOf: TmaxError });
  t.is(error.errno, 'EBADMSG');
  t.is(error.source, 'hub');
  t.regex(error.message, /login page.*given up after 6 attempts/);
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

test('each transfer asks for the token of the moment, and an unreadable one is an error of its own', async (t) => {
  const repository = repositoryOf(REPOSITORY, FILES, { access: 'private', readers: ['hf_first', 'hf_second'] });
  const hub = await startHub(t, FILES, { repositories: [repository] });
  const folder = await temporaryFolder(t);
  let token: string | undefined = 'hf_first';
  const from = source(t, hub, {
    token: async () => {
      if (token === undefined) throw new TmaxError('EACCES', 'the token file is unreadable');
      return token;
    },
  });
  await fetchInto(hub, from, SMALL, join(folder, '1'));
  token = 'hf_second';
  await fetchInto(hub, from, LARGE, join(folder, '2'));
  const tokens = hub.requests.all.map(({ server, headers }) => `${server} ${headers.authorization}`);
  t.deepEqual([...new Set(tokens)], ['hub Bearer hf_first', 'cdn undefined', 'hub Bearer hf_second']);
  token = undefined;
  const error = await t.throwsAsync(fetchInto(hub, from, SMALL, join(folder, '3')), { instanceOf: TmaxError });
  t.is(error.errno, 'EACCES');
  t.is(error.message, 'the token file is unreadable');
});

test('closing calls off what is under way', async (t) => {
  const hub = await startHub(t, FILES);
  hub.fault({ fault: { kind: 'stall', afterBytes: 10 }, server: 'cdn', requests: 'every' });
  const from = source(t, hub);
  const partial = join(await temporaryFolder(t), 'partial');
  const fetched = t.throwsAsync(fetchInto(hub, from, LARGE, partial), { instanceOf: TmaxError });
  await hub.requests.waitFor(({ server, bytesSent }) => server === 'cdn' && bytesSent === 10);
  await from.close();
  t.is((await fetched).errno, 'EINTR');
  const late = await t.throwsAsync(fetchInto(hub, from, LARGE, partial), { instanceOf: TmaxError });
  t.is(late.errno, 'EINTR');
});

test('a pause that one client was asked for holds for the transfers of every thread', async (t) => {
  const hub = await startHub(t, FILES);
  const governor = new RateGovernor();
  const pauseMs = 3_600_000;
  // A pause beyond what a transfer bears is a failure, tried again until it is final.
  const from = source(t, hub, { retry: { ...QUICK_RETRY, maxPauseMs: pauseMs } }, governor);
  governor.pause('resolver', pauseMs);
  const controller = new AbortController();
  const folder = await temporaryFolder(t);
  const fetched = Promise.all(
    FILES.map(async (file, index) => {
      const { signal } = controller;
      const path = join(folder, String(index));
      return t.throwsAsync(fetchInto(hub, from, file, path, { signal }), { instanceOf: TmaxError });
    }),
  );
  // The partial file is made before the Hub is asked: when both are there, both transfers have come to the pause.
  await eventually('both have come to it', () => readdirSync(folder).length === FILES.length || undefined);
  t.is(hub.requests.all.length, 0);
  controller.abort();
  t.deepEqual(
    (await fetched).map(({ errno }) => errno),
    ['EINTR', 'EINTR'],
  );
});

test('settings that can not work are refused before a thread is started', async (t) => {
  const hub = await startHub(t, FILES);
  const refused = (changes: Partial<HubSourceSettings>) =>
    t.throws(() => source(t, hub, changes), { instanceOf: TmaxError })?.errno;
  t.is(refused({ endpoint: 'hub' }), 'EINVAL');
  t.is(refused({ caFile: '/nonexistent' }), 'EINVAL');
  t.is(refused({ proxy: { httpsProxy: 'socks5://x' } }), 'EINVAL');
  t.is(refused({ proxy: { httpProxy: 'http://' } }), 'EINVAL');
});

test('blobs of every thread survive a Hub that fails at random', async (t) => {
  const files = Array.from({ length: 12 }, (_, index) =>
    imageOf(`images/${index}.sif`, patternBytes(300_000, index + 1)),
  );
  const hub = await startHub(t, files);
  const folder = await temporaryFolder(t);
  const from = source(t, hub, { threads: 2, connectionsPerBlob: 2 });
  const kinds: readonly Fault[] = [
    { kind: 'reset' },
    { kind: 'cut', afterBytes: 70_000 },
    { kind: 'status', status: 503 },
    { kind: 'expired' },
    { kind: 'chunked', afterBytes: 1000 },
    { kind: 'html' },
    { kind: 'ignore-range' },
  ];
  for (const [index, file] of files.entries()) {
    for (const requests of [[1], [2], [4]]) {
      const fault = kinds[(index + (requests[0] ?? 0)) % kinds.length];
      if (fault !== undefined) hub.fault({ fault, path: file.path, server: 'cdn', requests });
    }
  }
  const downloads = await Promise.all(files.map((file) => fetchInto(hub, from, file, join(folder, file.sha256))));
  t.deepEqual(
    downloads.map(({ sha256 }) => sha256),
    files.map(({ sha256 }) => sha256),
  );
});

test('threads start with the first download and end when nothing is fetched any more', async (t) => {
  const hub = await startHub(t, FILES);
  const folder = temporaryFolder(t);
  const from = source(t, hub, { idleThreadsMs: 10 });
  t.is(from.threadCount, 0);
  for (const round of ['first', 'second']) {
    const fetched = fetchInto(hub, from, SMALL, join(folder, round));
    t.is(from.threadCount, 2);
    await fetched;
    while (from.threadCount > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
});

test('while many blobs are fetched, each takes its share of the connections', async (t) => {
  const files = Array.from({ length: 16 }, (_, seed) => imageOf(`images/${seed}.sif`, patternBytes(18_000_000, seed)));
  const hub = await startHub(t, files);
  const folder = temporaryFolder(t);
  const from = source(t, hub, { connectionsPerBlob: 3 });
  await Promise.all(files.map((file) => fetchInto(hub, from, file, join(folder, file.sha256))));
  const requests = (file: FakeFile | undefined) => hub.requests.about(file?.path ?? '', 'cdn').length;
  t.is(requests(files[0]), 5, 'the first was alone');
  t.is(requests(files[15]), 1, 'the last was not');
});
