import { createHash } from 'node:crypto';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { FakeHub, type FakeHubOptions } from '../../src/demo/fake-hub.js';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { repositoryFromFolder } from '../../src/demo/fake-hub-folder.js';
import { type FakeRepository, fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { POOL_IMAGES, POOL_TASKS, poolFiles, poolImages, poolTaskMap } from '../support/pool-scale.js';
import { temporaryFolder } from '../support/temporary.js';

const NAME = 'org/pool';
const IMAGE = Buffer.from(Array.from({ length: 100_000 }, (_, at) => at % 251));
const FILES = [
  fileOf('images/a b#1?.sif', IMAGE),
  fileOf('images/plain.sif', IMAGE.subarray(0, 5000)),
  fileOf('task_to_blob.json', Buffer.from('{"original":{}}'), { lfs: false }),
];

async function start(
  t: ExecutionContext,
  options: Partial<FakeHubOptions> = {},
  repository: FakeRepository = repositoryOf(NAME, FILES),
): Promise<FakeHub> {
  const hub = await FakeHub.start({ repositories: [repository], ...options });
  t.teardown(() => hub.close());
  return hub;
}

const resolveUrl = (hub: FakeHub, path: string, revision = 'main') =>
  `${hub.endpoint}/datasets/${NAME}/resolve/${revision}/${path.split('/').map(encodeURIComponent).join('/')}`;

/** The storage URL that the resolver names for a file. */
async function storageUrl(hub: FakeHub, path = 'images/plain.sif'): Promise<string> {
  const answer = await fetch(resolveUrl(hub, path), { redirect: 'manual' });
  return answer.headers.get('location') ?? '';
}

const bearer = (token: string) => ({ headers: { authorization: `Bearer ${token}` } });

test('a large file is resolved to a signed URL on another host, with its size and digest', async (t) => {
  const hub = await start(t);
  const answer = await fetch(resolveUrl(hub, 'images/a b#1?.sif'), { redirect: 'manual' });
  t.is(answer.status, 302);
  t.is(answer.headers.get('x-linked-size'), '100000');
  t.is(answer.headers.get('x-linked-etag'), `"${createHash('sha256').update(IMAGE).digest('hex')}"`);
  t.is(answer.headers.get('x-repo-commit'), hub.repository(NAME).head.commit);
  const location = new URL(answer.headers.get('location') ?? '');
  t.not(location.hostname, new URL(hub.endpoint).hostname);
  t.deepEqual(Buffer.from(await (await fetch(location)).arrayBuffer()), IMAGE);
});

test('the path of a storage URL is stable while its signature is not', async (t) => {
  const hub = await start(t);
  const [first, second] = [new URL(await storageUrl(hub)), new URL(await storageUrl(hub))];
  t.is(first.pathname, second.pathname);
  t.false((await fetch(`${first}0`)).ok);
  hub.expireSignatures();
  t.is((await fetch(first)).status, 403);
  t.is((await fetch(await storageUrl(hub))).status, 200);
});

test('storage refuses whoever brings a token', async (t) => {
  const hub = await start(t);
  t.is((await fetch(await storageUrl(hub), bearer('hf_x'))).status, 400);
});

test('storage serves ranges, and says what can not be satisfied', async (t) => {
  const hub = await start(t);
  const url = await storageUrl(hub);
  const range = async (value: string) => {
    const answer = await fetch(url, { headers: { range: value } });
    return { status: answer.status, range: answer.headers.get('content-range'), bytes: await answer.arrayBuffer() };
  };
  const middle = await range('bytes=10-19');
  t.is(middle.status, 206);
  t.is(middle.range, 'bytes 10-19/5000');
  t.deepEqual(Buffer.from(middle.bytes), IMAGE.subarray(10, 20));
  t.is((await range('bytes=4990-')).range, 'bytes 4990-4999/5000');
  t.is((await range('bytes=-10')).range, 'bytes 4990-4999/5000');
  const beyond = await range('bytes=5000-');
  t.is(beyond.status, 416);
  t.is(beyond.range, 'bytes */5000');
});

test('a small file is served by the Hub itself, behind a relative redirect or at once', async (t) => {
  const hub = await start(t);
  const redirect = await fetch(resolveUrl(hub, 'task_to_blob.json'), { redirect: 'manual' });
  t.is(redirect.status, 307);
  t.regex(redirect.headers.get('location') ?? '', /^\/api\/resolve-cache\//);
  t.is(await (await fetch(resolveUrl(hub, 'task_to_blob.json'))).text(), '{"original":{}}');
  const direct = await start(t, { smallFiles: 'direct' });
  t.is((await fetch(resolveUrl(direct, 'task_to_blob.json'), { redirect: 'manual' })).status, 200);
});

test('raw shows what git stores: the pointer of a large file', async (t) => {
  const hub = await start(t);
  const text = await (await fetch(`${hub.endpoint}/datasets/${NAME}/raw/main/images/plain.sif`)).text();
  t.regex(text, /^version https:\/\/git-lfs\.github\.com\/spec\/v1\noid sha256:[0-9a-f]{64}\nsize 5000\n$/);
});

test('a listing of the whole pool takes 17 pages, joined by absolute links', async (t) => {
  const hub = await start(t, {}, repositoryOf(NAME, poolFiles()));
  let url: string | undefined = `${hub.endpoint}/api/datasets/${NAME}/tree/main?recursive=true`;
  const entries: { type: string; size: number }[] = [];
  let pages = 0;
  while (url !== undefined) {
    const answer: Response = await fetch(url);
    entries.push(...JSON.parse(await answer.text()));
    url = /^<(http[^>]+)>; rel="next"$/.exec(answer.headers.get('link') ?? '')?.[1];
    pages += 1;
  }
  t.is(pages, 17);
  t.is(entries.filter(({ type }) => type === 'file').length, POOL_IMAGES + 1);
  t.is(entries.filter(({ type }) => type === 'directory').length, 5);
  const [image] = poolImages();
  t.is((await fetch(resolveUrl(hub, image?.path ?? ''), { redirect: 'manual' })).status, 302);
  t.is((await fetch(await storageUrl(hub, image?.path))).status, 404);
});

test('the pool at scale has the published counts and sizes', (t) => {
  const map = poolTaskMap();
  for (const [variant, tasks] of Object.entries(POOL_TASKS)) t.is(Object.keys(map[variant] ?? {}).length, tasks);
  const sizes = poolImages(map)
    .map(({ sizeBytes }) => sizeBytes)
    .sort((a, b) => a - b);
  t.is(sizes.length, POOL_IMAGES);
  t.is(sizes[0], 49_500_160);
  t.is(sizes.at(-1), 3_449_798_656);
  const median = sizes[POOL_IMAGES >> 1] ?? 0;
  t.true(median > 107e6 && median < 117e6, `${median}`);
});

test('a folder is listed without what lies below it', async (t) => {
  const hub = await start(t);
  const list = async (suffix: string): Promise<{ path: string }[]> =>
    JSON.parse(await (await fetch(`${hub.endpoint}/api/datasets/${NAME}/tree/main${suffix}`)).text());
  t.deepEqual(
    (await list('')).map(({ path }) => path),
    ['images', 'task_to_blob.json'],
  );
  t.deepEqual(
    (await list('/images')).map(({ path }) => path),
    ['images/a b#1?.sif', 'images/plain.sif'],
  );
  t.is(
    (await fetch(`${hub.endpoint}/api/datasets/${NAME}/tree/main/nothing`)).headers.get('x-error-code'),
    'EntryNotFound',
  );
});

test('a branch that moves between two requests shows the new commit, and the old one stays', async (t) => {
  const hub = await start(t);
  const info = async (revision: string): Promise<{ sha: string; lastModified: string }> =>
    JSON.parse(
      await (
        await fetch(`${hub.endpoint}/api/datasets/${NAME}/revision/${revision}?expand=sha&expand=lastModified`)
      ).text(),
    );
  const before = await info('main');
  const date = new Date('2026-05-06T07:08:09.000Z');
  hub.repository(NAME).push({ commit: 'b'.repeat(40), date, files: [] });
  t.is((await info('main')).sha, 'b'.repeat(40));
  t.is((await info('main')).lastModified, date.toISOString());
  t.is((await info(before.sha)).sha, before.sha);
  const refs = JSON.parse(await (await fetch(`${hub.endpoint}/api/datasets/${NAME}/refs`)).text());
  t.is(refs.branches[0].targetCommit, 'b'.repeat(40));
});

test('paths-info leaves out what is missing, and takes a thousand paths at most', async (t) => {
  const hub = await start(t);
  const ask = (paths: readonly string[]) =>
    fetch(`${hub.endpoint}/api/datasets/${NAME}/paths-info/main`, { method: 'POST', body: JSON.stringify({ paths }) });
  const found: { path: string }[] = JSON.parse(await (await ask(['images/plain.sif', 'no'])).text());
  t.deepEqual(
    found.map(({ path }) => path),
    ['images/plain.sif'],
  );
  t.is((await ask(Array.from({ length: 1001 }, () => 'x'))).status, 413);
});

test('what is missing, hidden or gated is refused in the words of the Hub', async (t) => {
  const hub = await FakeHub.start({
    repositories: [
      repositoryOf(NAME, FILES),
      repositoryOf('org/secret', FILES, { access: 'private', readers: ['hf_reader'] }),
      repositoryOf('org/gated', FILES, { access: 'gated', readers: ['hf_member'] }),
    ],
  });
  t.teardown(() => hub.close());
  const ask = async (path: string, token?: string) => {
    const { status, headers } = await fetch(hub.endpoint + path, token === undefined ? {} : bearer(token));
    return [status, headers.get('x-error-code')];
  };
  t.deepEqual(await ask('/api/datasets/org/nothing'), [401, 'RepoNotFound']);
  t.deepEqual(await ask('/api/datasets/org/nothing', 'hf_reader'), [404, 'RepoNotFound']);
  t.deepEqual(await ask('/api/datasets/org/secret'), [401, 'RepoNotFound']);
  t.deepEqual(await ask('/api/datasets/org/secret', 'hf_member'), [404, 'RepoNotFound']);
  t.deepEqual(await ask('/api/datasets/org/secret', 'hf_reader'), [200, null]);
  t.deepEqual(await ask('/api/datasets/org/secret', 'hf_unknown'), [401, null]);
  t.deepEqual(await ask('/api/datasets/org/gated/tree/main'), [200, null]);
  t.deepEqual(await ask('/datasets/org/gated/resolve/main/task_to_blob.json'), [401, 'GatedRepo']);
  t.deepEqual(await ask('/datasets/org/gated/resolve/main/task_to_blob.json', 'hf_reader'), [403, 'GatedRepo']);
  t.deepEqual(await ask('/datasets/org/gated/resolve/main/task_to_blob.json', 'hf_member'), [200, null]);
  t.deepEqual(await ask(`/api/datasets/${NAME}/revision/none`), [404, 'RevisionNotFound']);
  t.deepEqual(await ask(`/datasets/${NAME}/resolve/main/none.sif`), [404, 'EntryNotFound']);
});

test('a mirror below a path prefix leaves out the optional headers', async (t) => {
  const hub = await start(t, { basePath: '/hf', bare: true });
  t.true(hub.endpoint.endsWith('/hf'));
  const answer = await fetch(resolveUrl(hub, 'images/plain.sif'), { redirect: 'manual' });
  t.is(answer.status, 302);
  t.is(answer.headers.get('x-linked-size'), null);
  t.is(await (await fetch(resolveUrl(hub, 'task_to_blob.json'))).text(), '{"original":{}}');
});

test('beyond its limit the Hub answers 429 and says how long to wait, per kind of request', async (t) => {
  const hub = await start(t, {
    rateLimits: {
      resolvers: { requests: 1, windowSeconds: 300 },
      api: { requests: 1, windowSeconds: 300, tell: 'Retry-After' },
    },
  });
  t.is((await fetch(resolveUrl(hub, 'images/plain.sif'), { redirect: 'manual' })).status, 302);
  const resolver = await fetch(resolveUrl(hub, 'images/plain.sif'), { redirect: 'manual' });
  t.is(resolver.status, 429);
  t.regex(resolver.headers.get('ratelimit') ?? '', /^"resolvers";r=0;t=(300|299)$/);
  t.is((await fetch(`${hub.endpoint}/api/datasets/${NAME}`)).status, 200);
  const api = await fetch(`${hub.endpoint}/api/datasets/${NAME}`);
  t.is(api.status, 429);
  t.regex(api.headers.get('retry-after') ?? '', /^(300|299)$/);
});

test('a folder of images becomes a repository, served from disk', async (t) => {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, 'images'));
  await writeFile(join(folder, 'images', 'one.sif'), IMAGE);
  await copyFile(join(folder, 'images', 'one.sif'), join(folder, 'two.sif'));
  await writeFile(join(folder, 'notes.txt'), 'not an image');
  const taskMap = { original: { task_1: 'images/one.sif' } };
  const hub = await start(t, {}, await repositoryFromFolder({ name: NAME, folder, taskMap }));
  t.deepEqual([...hub.repository(NAME).head.files.keys()], ['images/one.sif', 'task_to_blob.json', 'two.sif']);
  t.deepEqual(Buffer.from(await (await fetch(resolveUrl(hub, 'images/one.sif'))).arrayBuffer()), IMAGE);
  t.deepEqual(await (await fetch(resolveUrl(hub, 'task_to_blob.json'))).json(), taskMap);
});

/** What a plain client makes of each fault: the length it got, or the error. */
const FAULTS: readonly { fault: Fault; range?: string; sees: string }[] = [
  { fault: { kind: 'status', status: 503 }, sees: '503 10' },
  { fault: { kind: 'reset' }, sees: 'failed' },
  { fault: { kind: 'reset', afterBytes: 100 }, sees: '200 failed' },
  { fault: { kind: 'cut', afterBytes: 100 }, sees: '200 failed' },
  { fault: { kind: 'truncate', toBytes: 100 }, sees: '200 100' },
  { fault: { kind: 'excess', bytes: 7 }, sees: '200 5007' },
  { fault: { kind: 'chunked', afterBytes: 100 }, sees: '200 100' },
  { fault: { kind: 'corrupt', atByte: 4000 }, sees: '200 5000 wrong' },
  { fault: { kind: 'corrupt', atByte: 4000 }, range: 'bytes=4000-4009', sees: '206 10 wrong' },
  { fault: { kind: 'corrupt', atByte: 4000 }, range: 'bytes=0-9', sees: '206 10' },
  { fault: { kind: 'ignore-range' }, range: 'bytes=10-19', sees: '200 5000' },
  { fault: { kind: 'wrong-range', shiftBytes: 5 }, range: 'bytes=10-19', sees: '206 10 wrong' },
  { fault: { kind: 'slow', bytesPerSecond: 50_000 }, sees: '200 5000' },
  { fault: { kind: 'gzip' }, sees: '200 5000' },
  { fault: { kind: 'html' }, sees: '200 70 wrong' },
  { fault: { kind: 'no-content' }, sees: '204 0' },
  { fault: { kind: 'expired' }, sees: '403 99' },
  { fault: { kind: 'redirect-loop' }, sees: 'failed' },
];

for (const { fault, range, sees } of FAULTS) {
  test(`a fault strikes the request it is meant for: ${JSON.stringify(fault)} ${range ?? ''}`, async (t) => {
    const hub = await start(t);
    const url = await storageUrl(hub);
    const installed = hub.fault({
      fault,
      path: 'images/plain.sif',
      server: 'cdn',
      requests: fault.kind === 'redirect-loop' ? 'every' : [2],
    });
    const first =
      fault.kind === 'redirect-loop' ? IMAGE.subarray(0, 5000) : Buffer.from(await (await fetch(url)).arrayBuffer());
    t.deepEqual(first, IMAGE.subarray(0, 5000));
    t.is(await lookOf(url, range), sees);
    t.true(installed.hits >= 1);
    hub.clearFaults();
    t.is(await lookOf(url, range), range === undefined ? '200 5000' : '206 10');
  });
}

async function lookOf(url: string, range?: string): Promise<string> {
  const start = Number(/=(\d+)/.exec(range ?? '')?.[1] ?? 0);
  try {
    const answer = await fetch(url, range === undefined ? {} : { headers: { range } });
    const bytes = await answer.arrayBuffer().catch(() => undefined);
    if (bytes === undefined) return `${answer.status} failed`;
    const from = answer.status === 206 ? start : 0;
    const right = IMAGE.subarray(from, from + bytes.byteLength).equals(Buffer.from(bytes));
    const expected = answer.ok && bytes.byteLength <= 5000 ? right : true;
    return `${answer.status} ${bytes.byteLength}${expected ? '' : ' wrong'}`;
  } catch {
    return 'failed';
  }
}

test('a stall leaves the connection open until the Hub closes, before the headers or in the body', async (t) => {
  const hub = await start(t);
  const url = await storageUrl(hub);
  hub.fault({ fault: { kind: 'stall' }, server: 'cdn' });
  hub.fault({ fault: { kind: 'stall', afterBytes: 10 }, server: 'cdn', requests: [2] });
  const before = t.throwsAsync(fetch(url));
  await hub.requests.waitFor(({ server, state }) => server === 'cdn' && state === 'open');
  const answer = await fetch(url);
  const during = t.throwsAsync(answer.arrayBuffer());
  await hub.requests.waitFor(({ server, bytesSent }) => server === 'cdn' && bytesSent === 10);
  t.deepEqual(
    hub.requests.about('images/plain.sif', 'cdn').map(({ state }) => state),
    ['open', 'open'],
  );
  await hub.close();
  await Promise.all([before, during]);
});

test('an answer that is whole before it would have stalled is complete, and the next comes on the same connection', async (t) => {
  const hub = await start(t);
  const url = await storageUrl(hub);
  hub.fault({ fault: { kind: 'stall', afterBytes: 5000 }, server: 'cdn', requests: 'every' });
  for (const _ of [1, 2]) t.is((await (await fetch(url)).arrayBuffer()).byteLength, 5000);
  for (const { state } of hub.requests.about('images/plain.sif', 'cdn')) t.is(state, 'complete');
});

test('the log tells headers, bytes and how an answer ended', async (t) => {
  const hub = await start(t);
  const controller = new AbortController();
  hub.fault({ fault: { kind: 'stall', afterBytes: 10 }, server: 'cdn' });
  const answer = await fetch(await storageUrl(hub), { headers: { range: 'bytes=1-' }, signal: controller.signal });
  controller.abort();
  await t.throwsAsync(answer.arrayBuffer(), { any: true });
  const broken = await hub.requests.waitFor(({ state }) => state === 'broken');
  t.like(broken, { server: 'cdn', method: 'GET', status: 206, bytesSent: 10, file: 'images/plain.sif' });
  t.is(broken.headers.range, 'bytes=1-');
  t.is(broken.host, new URL(hub.cdnOrigin).host);
  await t.throwsAsync(
    hub.requests.waitFor(() => false, { timeoutMs: 1 }),
    { message: /no such request/ },
  );
});
