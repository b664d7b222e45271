import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { FakeHub, type FakeHubOptions } from '../../src/demo/fake-hub.js';
import type { Fault, FaultRule } from '../../src/demo/fake-hub-faults.js';
import { repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { TmaxError } from '../../src/errors.js';
import { type BlobTransferOptions, type RetryNote, transferBlob } from '../../src/sources/blob-transfer.js';
import { HttpClient } from '../../src/sources/http-client.js';
import { HubHttp } from '../../src/sources/hub-http.js';
import { HubLocation } from '../../src/sources/hub-location.js';
import type { HubSettings } from '../../src/sources/hub-settings.js';
import { RACE_AFTER_IDLE_SHARE, TAIL_SHARE } from '../../src/sources/limits.js';
import { RateGovernor } from '../../src/sources/rate-governor.js';
import type { Download } from '../../src/sources/source.js';
import { deadlinesFor, headOf, hubSettings, QUICK_RETRY, REPOSITORY } from '../support/hub.js';
import { temporaryFolder } from '../support/temporary.js';
import { addressOf, imageOf, patternBytes, sha256Of } from '../support/transfers.js';

const BYTES = patternBytes(400_000);
const IMAGE = imageOf('images/odd name #1?.sif', BYTES);
const PIECE_BYTES = 60_000;

interface Bench {
  readonly hub: FakeHub;
  readonly partial: string;
  readonly notes: RetryNote[];
  fetch(options?: Partial<BlobTransferOptions>): Promise<Download>;
}

async function bench(
  t: ExecutionContext,
  options: Partial<FakeHubOptions> = {},
  changes: Partial<HubSettings> = {},
): Promise<Bench> {
  const hub = await FakeHub.start({ repositories: [repositoryOf(REPOSITORY, [IMAGE])], ...options });
  const settings = hubSettings(hub.endpoint, changes);
  const client = new HttpClient(settings);
  const { maxPauseMs } = QUICK_RETRY;
  const http = new HubHttp({ ...settings, client, governor: new RateGovernor(), maxPauseMs });
  t.teardown(async () => {
    await client.close();
    await hub.close();
  });
  const partial = join(await temporaryFolder(t), 'partial');
  const notes: RetryNote[] = [];
  const raceAfterMs = settings.idleTimeoutMs * RACE_AFTER_IDLE_SHARE;
  const fetch = (more: Partial<BlobTransferOptions> = {}) =>
    transferBlob(addressOf(hub, IMAGE), partial, {
      location: new HubLocation(http, addressOf(hub, IMAGE)),
      raceAfterMs,
      retry: QUICK_RETRY,
      connections: 1,
      pieceBytes: PIECE_BYTES,
      signal: new AbortController().signal,
      onRetry: (note) => notes.push(note),
      ...more,
    });
  return { hub, partial, notes, fetch };
}

async function isRight(t: ExecutionContext, partial: string, download: Download, label?: string): Promise<void> {
  t.is(download.sha256, IMAGE.sha256, label);
  t.is(download.sizeBytes, IMAGE.sizeBytes, label);
  t.true((await readFile(partial)).equals(BYTES), label);
}

const errnoOf = async (t: ExecutionContext, promise: Promise<unknown>, label?: string): Promise<string> =>
  (await t.throwsAsync(promise, { instanceOf: TmaxError }, label)).errno;

const CONNECTIONS = [1, 3] as const;

for (const connections of CONNECTIONS) {
  test.serial(`a blob is resolved once and never probed, over ${connections} connection(s)`, async (t) => {
    const { hub, partial, fetch } = await bench(t);
    const progress: number[] = [];
    const download = await fetch({ connections, onProgress: (bytes) => progress.push(bytes) });
    await isRight(t, partial, download);
    t.is(download.resumedBytes, 0);
    t.is(download.attempts, connections === 1 ? 1 : Math.ceil(BYTES.length / PIECE_BYTES));
    t.is(hub.requests.about(IMAGE.path, 'hub').length, 1);
    t.is(hub.requests.about(IMAGE.path, 'cdn').length, download.attempts);
    t.true(hub.requests.all.every(({ method }) => method === 'GET'));
    t.true(hub.requests.all.every(({ headers }) => headers['accept-encoding'] === 'identity'));
    t.true(hub.requests.all.every(({ url, server }) => server === 'cdn' || url.includes(headOf(hub))));
    t.is(progress.at(-1), BYTES.length);
    t.deepEqual(
      progress,
      [...progress].sort((a, b) => a - b),
    );
    t.is((await stat(partial)).mode & 0o777, 0o600);
  });
}

for (const connections of CONNECTIONS) {
  test.serial(
    `the last bytes come before all others where they are wanted early, and only once, over ${connections} connection(s)`,
    async (t) => {
      const { hub, partial, fetch } = await bench(t);
      const tailBytes = Math.ceil(BYTES.length * TAIL_SHARE);
      const tails: { readonly bytes: Buffer; readonly atBytes: number }[] = [];
      let writtenBytes = 0;
      const download = await fetch({
        connections,
        onProgress: (bytes) => {
          writtenBytes = bytes;
        },
        onTail: (bytes) => tails.push({ bytes: Buffer.from(bytes), atBytes: writtenBytes }),
      });
      await isRight(t, partial, download);
      t.is(tails.length, 1);
      t.true(tails[0]?.bytes.equals(BYTES.subarray(-tailBytes)));
      t.true((tails[0]?.atBytes ?? BYTES.length) < BYTES.length);
      const ranges = hub.requests.about(IMAGE.path, 'cdn').map(({ headers }) => rangeOf(headers.range));
      t.deepEqual(ranges[0], [BYTES.length - tailBytes, BYTES.length]);
      // End to end and without overlap: nothing is asked for twice.
      const sorted = ranges.toSorted(([a = 0], [b = 0]) => a - b);
      t.deepEqual(
        sorted.map(([start]) => start),
        [0, ...sorted.slice(0, -1).map(([, end]) => end)],
      );
      t.is(sorted.at(-1)?.[1], BYTES.length);
    },
  );
}

test.serial('the last bytes are not asked for early where they are all that is missing', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  await writeFile(partial, BYTES.subarray(0, -1000));
  const tails: SharedArrayBuffer[] = [];
  await isRight(t, partial, await fetch({ onTail: (bytes) => tails.push(bytes) }));
  t.is(hub.requests.about(IMAGE.path, 'cdn').length, 1);
  t.is(tails.length, 0);
});

test.serial(
  'a server that sends the whole file whatever range is asked for is read in one stream, early tail or not',
  async (t) => {
    const { hub, partial, fetch } = await bench(t);
    hub.fault({ fault: { kind: 'ignore-range' }, server: 'cdn' });
    const tails: SharedArrayBuffer[] = [];
    await isRight(t, partial, await fetch({ onTail: (bytes) => tails.push(bytes) }));
    t.is(tails.length, 0);
  },
);

/** `[start, end)` of a Range header. */
function rangeOf(header: string | string[] | undefined): number[] {
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(String(header)) ?? [];
  return [Number(first), Number(last) + 1];
}

/** How a blob may come: the last bytes before their turn are asked for where somebody wants them. */
const WAYS: readonly { way: string; connections: number; onTail?: (bytes: SharedArrayBuffer) => void }[] = [
  { way: '1 connection', connections: 1 },
  { way: '3 connections', connections: 3 },
  { way: '3 connections, tail first', connections: 3, onTail: () => {} },
];

/** What a fault that stays ends in: an errno, or the right bytes, since each request brings some. */
const FAULTS: readonly { fault: Fault; stays: string }[] = [
  { fault: { kind: 'status', status: 408 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 429 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 429, headers: { ratelimit: '"resolvers";r=0;t=55' } }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 429, headers: { 'retry-after': '0' } }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 500 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 503, headers: { 'retry-after': '9' } }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 400 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 404 }, stays: 'ENOENT' },
  { fault: { kind: 'status', status: 202 }, stays: 'EBADMSG' },
  { fault: { kind: 'expired' }, stays: 'EACCES' },
  { fault: { kind: 'reset' }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'reset', afterBytes: 30_000 }, stays: 'right' },
  { fault: { kind: 'cut', afterBytes: 0 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'cut', afterBytes: 30_000 }, stays: 'right' },
  { fault: { kind: 'stall' }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'stall', afterBytes: 0 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'stall', afterBytes: 50_000 }, stays: 'right' },
  { fault: { kind: 'truncate', toBytes: 30_000 }, stays: 'EBADMSG' },
  { fault: { kind: 'excess', bytes: 7 }, stays: 'EBADMSG' },
  { fault: { kind: 'chunked', afterBytes: 0 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'chunked', afterBytes: 30_000 }, stays: 'right' },
  { fault: { kind: 'ignore-range' }, stays: 'right' },
  { fault: { kind: 'wrong-range', shiftBytes: 1 }, stays: 'EBADMSG' },
  { fault: { kind: 'gzip' }, stays: 'EBADMSG' },
  { fault: { kind: 'html' }, stays: 'EBADMSG' },
  { fault: { kind: 'no-content' }, stays: 'EBADMSG' },
  { fault: { kind: 'redirect-loop' }, stays: 'EBADMSG' },
  { fault: { kind: 'slow', bytesPerSecond: 400 }, stays: 'time' },
];

/** Faults that one request survives without a second attempt. */
const SILENT: ReadonlySet<string> = new Set(['ignore-range', 'redirect-loop']);

/** Faults whose tests mostly wait: at one time. All others one after the other, so that none takes another's slowness for silence. */
const WAITING: ReadonlySet<string> = new Set(['stall', 'slow']);

for (const { fault, stays } of FAULTS) {
  for (const { way, ...options } of WAYS) {
    const { connections } = options;
    (WAITING.has(fault.kind) ? test : test.serial)(
      `storage, ${way}: ${JSON.stringify(fault)} is survived; if it stays: ${stays}`,
      async (t) => {
        const { hub, partial, notes, fetch } = await bench(t, {}, deadlinesFor(fault));
        // The tail is too short for some faults to be felt.
        const tails = options.onTail === undefined ? 0 : 1;
        for (const requests of [[1], [1, 2], [2]].map((numbers) => numbers.map((number) => number + tails))) {
          const label = JSON.stringify(requests);
          const installed = hub.fault({ fault, server: 'cdn', requests });
          await isRight(t, partial, await fetch(options), label);
          if (connections > 1 || requests.includes(1)) t.true(installed.hits > 0, label);
          if (!SILENT.has(fault.kind) && installed.hits > 0) t.true(notes.length > 0, label);
          hub.clearFaults();
          await rm(partial);
        }
        hub.fault({ fault, server: 'cdn', requests: 'every' });
        const budget = stays === 'time' ? { retry: { ...QUICK_RETRY, totalBudgetMs: 700 } } : {};
        const fetched = fetch({ ...options, ...budget });
        if (stays === 'right') await isRight(t, partial, await fetched, 'every');
        else t.is(await errnoOf(t, fetched, 'every'), stays === 'time' ? 'EHOSTUNREACH' : stays);
        t.true((await stat(partial)).size <= BYTES.length);
      },
    );
  }
}

const RESOLVER_FAULTS: readonly { fault: Fault; stays: string; final?: boolean }[] = [
  { fault: { kind: 'status', status: 429, headers: { ratelimit: '"resolvers";r=0;t=55' } }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 503 }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'reset' }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'stall' }, stays: 'EHOSTUNREACH' },
  { fault: { kind: 'html' }, stays: 'EBADMSG' },
  { fault: { kind: 'no-content' }, stays: 'EBADMSG' },
  { fault: { kind: 'redirect-loop' }, stays: 'EBADMSG' },
  { fault: { kind: 'status', status: 401 }, stays: 'EACCES', final: true },
  { fault: { kind: 'status', status: 403 }, stays: 'EACCES', final: true },
  {
    fault: { kind: 'status', status: 404, headers: { 'x-error-code': 'EntryNotFound' } },
    stays: 'ENOENT',
    final: true,
  },
];

for (const { fault, stays, final = false } of RESOLVER_FAULTS) {
  const outcome = final ? 'ends it at once' : 'is survived once and twice';
  (WAITING.has(fault.kind) ? test : test.serial)(
    `resolver: ${JSON.stringify(fault)} ${outcome}, as ${stays} if it stays`,
    async (t) => {
      const { hub, partial, fetch } = await bench(t, {}, deadlinesFor(fault));
      for (const requests of final ? [] : [[1], [1, 2]]) {
        hub.fault({ fault, server: 'hub', requests });
        await isRight(t, partial, await fetch({ connections: 3 }));
        hub.clearFaults();
        await rm(partial);
      }
      hub.requests.clear();
      hub.fault({ fault, server: 'hub', requests: 'every' });
      t.is(await errnoOf(t, fetch({ connections: 3 })), stays);
      if (final) t.is(hub.requests.all.length, 1);
      t.is(hub.requests.filter(({ server }) => server === 'cdn').length, 0);
    },
  );
}

test.serial('a cut is resumed from where it broke, without a second resolve and without the prefix', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  hub.fault({ fault: { kind: 'cut', afterBytes: 150_000 }, server: 'cdn' });
  await isRight(t, partial, await fetch());
  const ranges = hub.requests.about(IMAGE.path, 'cdn').map(({ headers }) => headers.range);
  t.deepEqual(ranges, ['bytes=0-399999', 'bytes=150000-399999']);
  t.is(hub.requests.about(IMAGE.path, 'hub').length, 1);
});

test.serial('what an earlier transfer left is not fetched again', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  await writeFile(partial, BYTES.subarray(0, 390_000));
  const download = await fetch({ connections: 3 });
  await isRight(t, partial, download);
  t.is(download.resumedBytes, 390_000);
  t.deepEqual(
    hub.requests.about(IMAGE.path, 'cdn').map(({ headers }) => headers.range),
    ['bytes=390000-399999'],
  );
});

test.serial('a partial file that is complete needs no request', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  await writeFile(partial, BYTES);
  const download = await fetch();
  await isRight(t, partial, download);
  t.is(download.attempts, 0);
  t.is(hub.requests.all.length, 0);
});

test.serial('a prefix of something else, and a flipped bit, show in the digest; begun anew it is right', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  await writeFile(partial, Buffer.alloc(1000, 7));
  t.not((await fetch()).sha256, IMAGE.sha256);
  await rm(partial);
  hub.fault({ fault: { kind: 'corrupt', atByte: 123_456 }, server: 'cdn' });
  const corrupt = await fetch();
  t.not(corrupt.sha256, IMAGE.sha256);
  t.is(corrupt.sha256, sha256Of(await readFile(partial)));
  await rm(partial);
  await isRight(t, partial, await fetch());
});

test.serial('a signature that runs out in the middle is renewed at once, and only then', async (t) => {
  const { hub, partial, notes, fetch } = await bench(t);
  hub.fault({ fault: { kind: 'cut', afterBytes: 100_000 }, server: 'cdn' });
  hub.fault({ fault: { kind: 'expired' }, server: 'cdn', requests: [2] });
  await isRight(t, partial, await fetch());
  t.is(hub.requests.about(IMAGE.path, 'hub').length, 2);
  t.deepEqual(
    notes.map(({ attempt }) => attempt),
    [1, 2],
  );
});

test.serial('storage that refuses every fresh URL costs the resolver only a few hits', async (t) => {
  for (const fault of [{ kind: 'expired' }, { kind: 'status', status: 404 }] as const) {
    const { hub, fetch } = await bench(t);
    hub.fault({ fault, server: 'cdn', requests: 'every' });
    const retry = { ...QUICK_RETRY, maxAttemptsWithoutProgress: 1000 };
    t.is(await errnoOf(t, fetch({ retry })), fault.kind === 'expired' ? 'EACCES' : 'ENOENT');
    t.is(hub.requests.about(IMAGE.path, 'hub').length, 5);
  }
});

test.serial('several connections that find their URL expired ask for one fresh one', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  hub.fault({ fault: { kind: 'expired' }, server: 'cdn', requests: [1, 2, 3] });
  await isRight(t, partial, await fetch({ connections: 3 }));
  t.is(hub.requests.about(IMAGE.path, 'hub').length, 2);
});

test.serial('where ranges are ignored, one connection takes the whole file, and skips what is there', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  await writeFile(partial, BYTES.subarray(0, 1000));
  hub.fault({ fault: { kind: 'ignore-range' }, server: 'cdn', requests: 'every' });
  const download = await fetch({ connections: 3 });
  await isRight(t, partial, download);
  t.is(download.resumedBytes, 1000);
  const last = hub.requests.about(IMAGE.path, 'cdn').at(-1);
  t.like(last, { status: 200, bytesSent: BYTES.length });
  t.is(last?.headers.range, 'bytes=1000-399999');
});

test.serial('an abort ends a transfer at once and leaves a prefix that is resumed', async (t) => {
  for (const connections of CONNECTIONS) {
    const { hub, partial, fetch } = await bench(t);
    const stall = hub.fault({ fault: { kind: 'stall', afterBytes: 50_000 }, server: 'cdn', requests: 'every' });
    const controller = new AbortController();
    const progressed = new Promise<void>((resolve) => {
      const onProgress = (bytes: number) => bytes >= 50_000 && resolve();
      void t.throwsAsync(
        fetch({ connections, signal: controller.signal, onProgress }).finally(() => controller.abort()),
        {
          message: /called off/,
        },
      );
    });
    await progressed;
    const startedAt = performance.now();
    controller.abort();
    await hub.requests.waitFor(({ server, state }) => server === 'cdn' && state === 'broken');
    t.true(performance.now() - startedAt < 2000);
    t.true((await readFile(partial)).equals(BYTES.subarray(0, 50_000)));
    stall.remove();
    hub.requests.clear();
    const download = await fetch({ connections });
    await isRight(t, partial, download);
    t.is(download.resumedBytes, 50_000);
    t.regex(hub.requests.about(IMAGE.path, 'cdn')[0]?.headers.range ?? '', /^bytes=50000-/);
  }
});

test.serial('an abort ends a pause between attempts at once', async (t) => {
  const { hub, fetch } = await bench(t);
  hub.fault({ fault: { kind: 'status', status: 503 }, server: 'cdn', requests: 'every' });
  const controller = new AbortController();
  const retry = { ...QUICK_RETRY, baseMs: 3_600_000, maxMs: 3_600_000, totalBudgetMs: 10_000_000 };
  const onRetry = () => controller.abort();
  t.is(await errnoOf(t, fetch({ signal: controller.signal, retry, onRetry })), 'EINTR');
});

test.serial(
  'the token stays on the host of the Hub, is renewed between attempts, and goes to no redirect',
  async (t) => {
    let token = 'hf_first';
    const repository = repositoryOf(REPOSITORY, [IMAGE], { access: 'private', readers: ['hf_first', 'hf_second'] });
    const { hub, partial, fetch } = await bench(t, { repositories: [repository] }, { token: async () => token });
    hub.fault({ fault: { kind: 'expired' }, server: 'cdn' });
    await isRight(
      t,
      partial,
      await fetch({
        onRetry: () => {
          token = 'hf_second';
        },
      }),
    );
    const seen = hub.requests.all.map(({ server, headers }) => `${server} ${headers.authorization}`);
    t.deepEqual(seen, ['hub Bearer hf_first', 'cdn undefined', 'hub Bearer hf_second', 'cdn undefined']);
  },
);

test.serial('a token that is replaced while it is refused is tried again', async (t) => {
  const tokens = ['hf_revoked', 'hf_revoked', 'hf_good'];
  const repository = repositoryOf(REPOSITORY, [IMAGE], { access: 'private', readers: ['hf_good'] });
  const token = async () => (tokens.length > 1 ? tokens.shift() : tokens[0]);
  const { partial, fetch } = await bench(t, { repositories: [repository] }, { token });
  await isRight(t, partial, await fetch());
});

test.serial('a gated repository and a missing token end in EACCES with what to do, after one request', async (t) => {
  const repository = repositoryOf(REPOSITORY, [IMAGE], { access: 'gated' });
  const { hub, fetch } = await bench(t, { repositories: [repository] });
  const error = await t.throwsAsync(fetch(), { instanceOf: TmaxError });
  t.is(error.errno, 'EACCES');
  t.regex(error.message, /accept its terms/);
  t.is(hub.requests.all.length, 1);
});

test.serial('a mirror that serves the bytes itself, without optional headers, will do', async (t) => {
  const plain = { ...IMAGE, lfs: false };
  for (const smallFiles of ['direct', 'redirect'] as const) {
    const { partial, fetch } = await bench(t, {
      repositories: [repositoryOf(REPOSITORY, [plain])],
      smallFiles,
      bare: true,
      basePath: '/mirror',
    });
    await isRight(t, partial, await fetch({ connections: 3 }), smallFiles);
  }
});

test.serial('a resolver that states another digest or size is not followed', async (t) => {
  const { hub, fetch } = await bench(t);
  const other = imageOf(IMAGE.path, patternBytes(400_000, 9));
  const commit = headOf(hub);
  hub.repository(REPOSITORY).push({ commit, date: new Date(0), files: [other] });
  t.is(await errnoOf(t, fetch()), 'EBADMSG');
  t.is(hub.requests.filter(({ server }) => server === 'cdn').length, 0);
});

test.serial('no message and no note shows a signature', async (t) => {
  const { hub, notes, fetch } = await bench(t);
  for (const fault of FAULTS.map(({ fault: one }) => one).filter(({ kind }) => kind !== 'slow' && kind !== 'stall')) {
    hub.fault({ fault, server: 'cdn', requests: 'every' });
    await fetch().catch((error: unknown) => notes.push({ attempt: 0, waitMs: 0, reason: String(error) }));
    hub.clearFaults();
  }
  t.true(notes.length > 20);
  t.false(notes.some(({ reason }) => /Signature|Expires|hf_/.test(reason)));
});

test.serial('whatever goes wrong, and when, a transfer ends in the right bytes or in a proper errno', async (t) => {
  const anyFault = fc.constantFrom<Fault>(
    ...FAULTS.map(({ fault }) => fault).filter(({ kind }) => kind !== 'slow' && kind !== 'stall'),
    { kind: 'cut', afterBytes: 1 },
    { kind: 'chunked', afterBytes: 399_999 },
    { kind: 'reset', afterBytes: 65_537 },
  );
  const anyRule = fc.record<FaultRule>({
    fault: anyFault,
    server: fc.constantFrom('hub', 'cdn', 'cdn', 'cdn'),
    requests: fc.uniqueArray(fc.integer({ min: 1, max: 6 }), { maxLength: 4 }),
  });
  const { hub, partial, fetch } = await bench(t);
  const errnos = new Set(['EHOSTUNREACH', 'EBADMSG', 'EACCES', 'ENOENT', 'EIO']);
  await fc.assert(
    fc.asyncProperty(
      fc.array(anyRule, { maxLength: 4 }),
      fc.integer({ min: 1, max: 4 }),
      fc.nat(399_999),
      async (rules, connections, held) => {
        await writeFile(partial, BYTES.subarray(0, held));
        for (const rule of rules) hub.fault(rule);
        const ended = await fetch({ connections, onTail: () => {} }).catch((error: unknown) => error);
        hub.clearFaults();
        if (ended instanceof Error) t.true(ended instanceof TmaxError && errnos.has(ended.errno), String(ended));
        const left = await readFile(partial);
        t.true(left.equals(BYTES.subarray(0, left.length)), 'what is left is a prefix');
        await isRight(t, partial, await fetch({ connections }));
      },
    ),
    { numRuns: 80 },
  );
});

test.serial(
  'a range that falls silent is asked for a second time long before its deadline; nothing else is',
  async (t) => {
    for (const fault of [{ kind: 'stall' }, { kind: 'stall', afterBytes: 10_000 }] as const) {
      for (const connections of CONNECTIONS) {
        const { hub, partial, notes, fetch } = await bench(t);
        hub.fault({ fault, server: 'cdn' });
        await isRight(t, partial, await fetch({ connections, raceAfterMs: 1500 }));
        const ranges = hub.requests.about(IMAGE.path, 'cdn').map(({ headers }) => String(headers.range));
        const pieces = connections === 1 ? 1 : Math.ceil(BYTES.length / PIECE_BYTES);
        t.is(ranges.length, pieces + 1, ranges.join());
        if (!('afterBytes' in fault)) t.is(new Set(ranges).size, pieces);
        t.is(notes.length, 1);
        t.regex(notes[0]?.reason ?? '', /nothing came for 1500 ms/);
        t.is(hub.requests.about(IMAGE.path, 'hub').length, 1);
      }
    }
  },
);

test.serial('of two that are silent the one that speaks first goes on, be it the first', async (t) => {
  const { hub, partial, fetch } = await bench(t);
  hub.fault({ fault: { kind: 'slow', bytesPerSecond: 400_000 }, server: 'cdn' });
  hub.fault({ fault: { kind: 'stall' }, server: 'cdn', requests: [2, 3, 4, 5, 6] });
  await isRight(t, partial, await fetch({ raceAfterMs: 5 }));
});
