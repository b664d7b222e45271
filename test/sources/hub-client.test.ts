import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { connect, type Socket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { FakeHub } from '../../src/demo/fake-hub.js';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { type FakeFile, fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { TmaxError } from '../../src/errors.js';
import { HubClient, type ListedFile } from '../../src/sources/hub-client.js';
import type { HubSettings } from '../../src/sources/hub-settings.js';
import { deadlinesFor, headOf, hubSettings, QUICK_RETRY, REPOSITORY, recordingLog, startHub } from '../support/hub.js';
import { packagePath } from '../support/paths.js';

const MAP = Buffer.from(JSON.stringify({ original: { task_1: 'images/a.sif' } }));
const FILES: readonly FakeFile[] = [
  fileOf('images/a.sif', Buffer.alloc(1000, 1)),
  fileOf('images/b.sif', Buffer.alloc(2000, 2)),
  fileOf('task_to_blob.json', MAP, { lfs: false }),
  fileOf('odd names/a b#1?&%.json', Buffer.from('{"odd":1}'), { lfs: false }),
];
const COMMIT = 'c'.repeat(40);
/** Another host name for the same machine, as a mirror or a thief would have. */
const ELSEWHERE = '127.0.0.3';

function client(t: ExecutionContext, endpoint: string, changes: Partial<HubSettings> = {}): HubClient {
  const one = new HubClient(hubSettings(endpoint, changes), QUICK_RETRY);
  t.teardown(() => one.close());
  return one;
}

async function all(listing: AsyncIterable<ListedFile>): Promise<ListedFile[]> {
  const files: ListedFile[] = [];
  for await (const file of listing) files.push(file);
  return files;
}

/** The error of a promise that must fail, as errno and message. */
async function failure(t: ExecutionContext, promise: Promise<unknown>): Promise<{ errno: string; message: string }> {
  const error = await t.throwsAsync(promise, { instanceOf: TmaxError });
  return { errno: error.errno, message: error.message };
}

/** A server that answers everything in the same way. */
async function serve(
  t: ExecutionContext,
  status: number,
  headers: Record<string, string>,
  body: string,
  address = '127.0.0.1',
): Promise<{ origin: string; seen: { url: string; authorization: string | undefined }[] }> {
  const seen: { url: string; authorization: string | undefined }[] = [];
  const server = createServer((request, response) => {
    seen.push({ url: request.url ?? '', authorization: request.headers.authorization });
    response.writeHead(status, headers).end(body);
  });
  return { origin: `http://${address}:${await listen(t, server, address)}`, seen };
}

/** Port of a server that lives as long as the test. */
async function listen(t: ExecutionContext, server: Server, address = '127.0.0.1'): Promise<number> {
  server.listen(0, address);
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const bound = server.address();
  return typeof bound === 'object' && bound !== null ? bound.port : 0;
}

test('a revision resolves to its commit and date, by one request', async (t) => {
  const date = new Date('2026-03-04T05:06:07.000Z');
  const hub = await FakeHub.start({ repositories: [repositoryOf(REPOSITORY, FILES, { commit: COMMIT, date })] });
  t.teardown(() => hub.close());
  t.deepEqual(await client(t, `${hub.endpoint}//`).resolveRevision(REPOSITORY, 'main'), { commit: COMMIT, date });
  t.is(hub.requests.all.length, 1);
  t.is(hub.requests.all[0]?.headers['user-agent'], 'tmaxfs/test');
});

test('a branch that moves while it is listed does not mix two commits', async (t) => {
  const hub = await startHub(t, FILES, { pageSize: 2 });
  const one = client(t, hub.endpoint);
  const { commit } = await one.resolveRevision(REPOSITORY, 'main');
  const listing = one.listFiles(REPOSITORY, commit);
  const first = await listing.next();
  hub.repository(REPOSITORY).push({ commit: COMMIT, date: new Date(0), files: [] });
  const rest = await all(listing);
  t.is([first.value, ...rest].length, FILES.length);
});

for (const smallFiles of ['redirect', 'direct'] as const) {
  test(`a small file is read whole, by one hit of the resolver: ${smallFiles}`, async (t) => {
    const hub = await startHub(t, FILES, { smallFiles, basePath: '/mirror', bare: true });
    const one = client(t, hub.endpoint);
    t.deepEqual(await one.readSmallFile(REPOSITORY, headOf(hub), 'task_to_blob.json', { maxBytes: 1000 }), MAP);
    t.is(hub.requests.filter(({ url }) => url.includes('/resolve/')).length, 1);
    const odd = await one.readSmallFile(REPOSITORY, headOf(hub), 'odd names/a b#1?&%.json', { maxBytes: 1000 });
    t.is(odd.toString(), '{"odd":1}');
  });
}

test('a small file in LFS comes from storage, without the token', async (t) => {
  const hub = await FakeHub.start({
    repositories: [repositoryOf(REPOSITORY, FILES, { access: 'private', readers: ['hf_reader'] })],
  });
  t.teardown(() => hub.close());
  const one = client(t, hub.endpoint, { token: async () => ' hf_reader\n' });
  const body = await one.readSmallFile(REPOSITORY, headOf(hub), 'images/a.sif', { maxBytes: 1000 });
  t.is(body.length, 1000);
  const tokens = hub.requests.all.map(({ server, headers }) => [server, headers.authorization]);
  t.deepEqual(tokens, [
    ['hub', 'Bearer hf_reader'],
    ['cdn', undefined],
  ]);
});

test('a file that is larger than allowed is refused, not read', async (t) => {
  const hub = await startHub(t, FILES);
  const { errno, message } = await failure(
    t,
    client(t, hub.endpoint).readSmallFile(REPOSITORY, headOf(hub), 'images/b.sif', { maxBytes: 1999 }),
  );
  t.is(errno, 'EBADMSG');
  t.regex(message, /more than 1999 bytes/);
});

test('the token of the moment is used, and only on the host of the Hub', async (t) => {
  const hub = await FakeHub.start({
    repositories: [repositoryOf(REPOSITORY, FILES, { access: 'private', readers: ['hf_old', 'hf_new'] })],
  });
  t.teardown(() => hub.close());
  let token = 'hf_old';
  const one = client(t, hub.endpoint, { token: async () => token });
  await one.resolveRevision(REPOSITORY, 'main');
  token = 'hf_new';
  await one.resolveRevision(REPOSITORY, 'main');
  t.deepEqual(
    hub.requests.all.map(({ headers }) => headers.authorization),
    ['Bearer hf_old', 'Bearer hf_new'],
  );
});

test('neither a redirect nor a link to the next page takes the token to another host or port', async (t) => {
  const page = JSON.stringify([{ type: 'file', path: 'x.sif', size: 1, oid: 'a'.repeat(40) }]);
  for (const address of [ELSEWHERE, '127.0.0.1']) {
    const elsewhere = await serve(t, 200, { 'content-type': 'application/json' }, page, address);
    const link = `<${elsewhere.origin}/next>; rel="next"`;
    const linking = await serve(t, 200, { 'content-type': 'application/json', link }, page);
    const redirecting = await serve(t, 302, { location: `${elsewhere.origin}/redirected` }, '');
    for (const { origin } of [linking, redirecting]) {
      const one = client(t, origin, { token: async () => 'hf_secret' });
      await all(one.listFiles(REPOSITORY, COMMIT));
    }
    t.deepEqual(
      elsewhere.seen.map(({ authorization }) => authorization),
      [undefined, undefined],
    );
    t.true([...linking.seen, ...redirecting.seen].every(({ authorization }) => authorization === 'Bearer hf_secret'));
  }
});

test('something that is no token of the Hub is refused before anything is sent, and not shown', async (t) => {
  const hub = await startHub(t, FILES);
  for (const token of ['sk-openai', 'hf_with space', 'hf_\nX-Evil: 1']) {
    const { errno, message } = await failure(
      t,
      client(t, hub.endpoint, { token: async () => token }).resolveRevision(REPOSITORY, 'main'),
    );
    t.is(errno, 'EACCES');
    t.false(message.includes(token));
    t.regex(message, /HF_TOKEN/);
  }
  t.is(hub.requests.all.length, 0);
});

test('a refusal says what to do', async (t) => {
  const hub = await FakeHub.start({
    repositories: [
      repositoryOf(REPOSITORY, FILES, { readers: ['hf_other'] }),
      repositoryOf('org/private', FILES, { access: 'private', readers: ['hf_reader'] }),
      repositoryOf('org/gated', FILES, { access: 'gated', readers: ['hf_member'] }),
    ],
  });
  t.teardown(() => hub.close());
  const ask = async (repository: string, token: string | undefined, path = 'task_to_blob.json', revision = 'main') => {
    const one = client(t, hub.endpoint, { token: async () => token });
    const read = async () => {
      const { commit } = await one.resolveRevision(repository, revision);
      await one.readSmallFile(repository, commit, path, { maxBytes: 1000 });
    };
    const { errno, message } = await failure(t, read());
    if (token !== undefined) t.false(message.includes(token));
    return `${errno} ${message}`;
  };
  t.regex(await ask('org/nothing', undefined), /^EACCES no dataset org\/nothing .* set HF_TOKEN if it is private/);
  t.regex(await ask('org/private', undefined), /^EACCES no dataset org\/private .* set HF_TOKEN if it is private/);
  t.regex(await ask('org/private', 'hf_other'), /^ENOENT there is no dataset org\/private, or the token may not/);
  t.regex(await ask('org/private', 'hf_stale'), /^EACCES .*the token is refused: is it expired/);
  t.regex(
    await ask('org/gated', undefined),
    /^EACCES .*gated: accept its terms at http.*\/datasets\/org\/gated and set HF_TOKEN/,
  );
  t.regex(await ask('org/gated', 'hf_other'), /^EACCES .*gated: accept its terms at .* with the account of the token/);
  t.regex(await ask(REPOSITORY, undefined, 'task_to_blob.json', 'v9'), /^ENOENT .*has no revision "v9"/);
  t.regex(await ask(REPOSITORY, undefined, 'none.json'), /^ENOENT .*has no file none\.json/);
  t.true(hub.requests.all.every(({ status }) => status !== 0));
});

test('refusals are not asked for twice', async (t) => {
  const hub = await startHub(t, FILES);
  await failure(t, client(t, hub.endpoint).resolveRevision('org/nothing', 'main'));
  await failure(t, client(t, hub.endpoint).resolveRevision(REPOSITORY, 'nothing'));
  t.is(hub.requests.all.length, 2);
});

const FAULTS: readonly { fault: Fault; errno: string }[] = [
  { fault: { kind: 'status', status: 408 }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 429, headers: { 'retry-after': '0' } }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 429, headers: { ratelimit: '"api";r=0;t=55' } }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 500 }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'status', status: 503 }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'reset' }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'reset', afterBytes: 5 }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'cut', afterBytes: 5 }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'stall' }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'stall', afterBytes: 5 }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'slow', bytesPerSecond: 60 }, errno: 'EHOSTUNREACH' },
  { fault: { kind: 'truncate', toBytes: 5 }, errno: 'EBADMSG' },
  { fault: { kind: 'chunked', afterBytes: 5 }, errno: 'EBADMSG' },
  { fault: { kind: 'gzip' }, errno: 'EBADMSG' },
  { fault: { kind: 'html' }, errno: 'EBADMSG' },
  { fault: { kind: 'no-content' }, errno: 'EBADMSG' },
  { fault: { kind: 'redirect-loop' }, errno: 'EBADMSG' },
];

for (const { fault, errno } of FAULTS) {
  test(`a listing survives ${JSON.stringify(fault)} once and twice, and ends in ${errno} if it stays`, async (t) => {
    const hub = await startHub(t, FILES, { pageSize: 3 });
    const one = client(t, hub.endpoint, deadlinesFor(fault));
    const path = /\/tree\//;
    for (const requests of [[1], [2], [1, 2]]) {
      const installed = hub.fault({ fault, path, requests });
      t.is((await all(one.listFiles(REPOSITORY, headOf(hub)))).length, FILES.length);
      t.true(installed.hits > 0);
      hub.clearFaults();
    }
    hub.fault({ fault, path, requests: 'every' });
    t.is((await failure(t, all(one.listFiles(REPOSITORY, headOf(hub))))).errno, errno);
  });

  test(`a small file survives ${JSON.stringify(fault)} twice, and ends in ${errno} if it stays`, async (t) => {
    const hub = await startHub(t, FILES);
    const one = client(t, hub.endpoint, deadlinesFor(fault));
    const expected = (await all(one.listFiles(REPOSITORY, headOf(hub)))).find(
      ({ path }) => path === 'task_to_blob.json',
    );
    const read = () =>
      one.readSmallFile(REPOSITORY, headOf(hub), 'task_to_blob.json', {
        maxBytes: 1000,
        ...(expected === undefined ? {} : { expected }),
      });
    hub.fault({ fault, path: /resolve/, requests: [2, 3] });
    t.deepEqual(await read(), MAP);
    t.deepEqual(await read(), MAP);
    hub.fault({ fault, path: /resolve-cache/, requests: 'every' });
    t.is((await failure(t, read())).errno, errno);
  });
}

test('a flipped bit in a small file is seen by the digest of the listing, in LFS and outside', async (t) => {
  const hub = await startHub(t, FILES);
  const one = client(t, hub.endpoint);
  for (const expected of await all(one.listFiles(REPOSITORY, headOf(hub)))) {
    const read = () => one.readSmallFile(REPOSITORY, headOf(hub), expected.path, { maxBytes: 5000, expected });
    const path = /resolve-cache|Signature/;
    hub.fault({ fault: { kind: 'corrupt', atByte: 3 }, path });
    t.is((await read()).length, expected.sizeBytes);
    hub.fault({ fault: { kind: 'corrupt', atByte: 3 }, path, requests: 'every' });
    t.is((await failure(t, read())).errno, 'EBADMSG');
    hub.clearFaults();
  }
});

test('a server that sends nonsense is not believed', async (t) => {
  const json = { 'content-type': 'application/json' };
  const entry = { type: 'file', path: 'x', size: 1, oid: 'a'.repeat(40) };
  const nonsense: unknown[] = [
    { error: 'not a list' },
    [null],
    [{ ...entry, size: -1 }],
    [{ ...entry, size: 1.5 }],
    [{ ...entry, path: 5 }],
    [{ ...entry, oid: 'short' }],
    [{ ...entry, lfs: { oid: 'A'.repeat(64), size: 1 } }],
    [{ ...entry, lfs: { oid: 'a'.repeat(64), size: '1' } }],
  ];
  for (const value of nonsense) {
    const { origin } = await serve(t, 200, json, JSON.stringify(value));
    const error = await t.throwsAsync(
      all(client(t, origin).listFiles(REPOSITORY, COMMIT)),
      undefined,
      JSON.stringify(value),
    );
    t.is(error instanceof TmaxError ? error.errno : error?.message, 'EBADMSG', JSON.stringify(value));
  }
  for (const value of [
    {},
    { sha: 'main', lastModified: 'now' },
    { sha: COMMIT },
    { sha: COMMIT, lastModified: 'never' },
  ]) {
    const { origin } = await serve(t, 200, json, JSON.stringify(value));
    t.is((await failure(t, client(t, origin).resolveRevision(REPOSITORY, 'main'))).errno, 'EBADMSG');
  }
});

test('a listing without end is ended', async (t) => {
  let origin = '';
  const looping = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', link: `<${origin}/>; rel="next"` }).end('[]');
  });
  origin = `http://127.0.0.1:${await listen(t, looping)}`;
  const { errno, message } = await failure(t, all(client(t, origin).listFiles(REPOSITORY, COMMIT)));
  t.is(errno, 'EBADMSG');
  t.regex(message, /no end/);
});

test('a Hub that is not there is named, and so is a proxy that leads nowhere, first of all', async (t) => {
  const nobody = await serve(t, 200, {}, '');
  const gone = await startHub(t, FILES);
  await gone.close();
  const direct = await failure(t, client(t, gone.endpoint).resolveRevision(REPOSITORY, 'main'));
  t.is(direct.errno, 'EHOSTUNREACH');
  t.regex(direct.message, /^127\.0\.0\.1:\d+ can't be reached: .*ECONNREFUSED/);
  const httpProxy = gone.endpoint.replace('http://', 'http://user:secret@');
  const proxied = await failure(
    t,
    client(t, nobody.origin, { proxy: { httpProxy } }).resolveRevision(REPOSITORY, 'main'),
  );
  t.is(proxied.errno, 'EHOSTUNREACH');
  t.true(proxied.message.startsWith(`HTTP_PROXY (${gone.endpoint}) is set and leads nowhere for ${nobody.origin}`));
  t.is(nobody.seen.length, 0);
  const exempt = client(t, nobody.origin, { proxy: { httpProxy, noProxy: '127.0.0.1' } });
  await failure(t, exempt.resolveRevision(REPOSITORY, 'main'));
  t.true(nobody.seen.length > 0);
});

test('a proxy is asked in absolute form', async (t) => {
  const proxy = await serve(t, 200, { 'content-type': 'application/json' }, '[]');
  t.deepEqual(
    await all(client(t, 'http://hub.test', { proxy: { httpProxy: proxy.origin } }).listFiles(REPOSITORY, COMMIT)),
    [],
  );
  t.true(proxy.seen[0]?.url.startsWith('http://hub.test/api/datasets/'));
});

test('an abort ends a stalled question at once', async (t) => {
  const hub = await startHub(t, FILES);
  hub.fault({ fault: { kind: 'stall' } });
  const controller = new AbortController();
  const one = client(t, hub.endpoint, { headersTimeoutMs: 60_000 });
  const asked = failure(t, one.resolveRevision(REPOSITORY, 'main', controller.signal));
  await hub.requests.waitFor(() => true);
  controller.abort();
  t.is((await asked).errno, 'EINTR');
});

test('an abort ends the pause that the Hub has asked for', async (t) => {
  const hub = await startHub(t, FILES, { rateLimits: { api: { requests: 0, windowSeconds: 300 } } });
  const controller = new AbortController();
  const patient = { ...QUICK_RETRY, maxPauseMs: 60_000, totalBudgetMs: 600_000 };
  const { log, lines } = recordingLog();
  const one = new HubClient(hubSettings(hub.endpoint, { log }), patient);
  t.teardown(() => one.close());
  const asked = failure(t, one.resolveRevision(REPOSITORY, 'main', controller.signal));
  await hub.requests.waitFor(({ state }) => state === 'complete');
  controller.abort();
  t.is((await asked).errno, 'EINTR');
  t.true(lines.length <= 1);
});

test('a retry is logged with its reason and without a secret', async (t) => {
  const { log, lines } = recordingLog();
  const hub = await startHub(t, FILES);
  hub.fault({ fault: { kind: 'cut', afterBytes: 10 }, server: 'cdn' });
  const one = client(t, hub.endpoint, { log });
  await one.readSmallFile(REPOSITORY, headOf(hub), 'images/a.sif', { maxBytes: 1000 });
  t.is(lines.length, 1);
  t.like(lines[0], { repository: REPOSITORY, path: 'images/a.sif', attempt: 1 });
  t.regex(String(lines[0]?.['msg']), /^asking again: 127\.0\.0\.2:\d+ can't be reached/);
  t.false(JSON.stringify(lines).includes('Signature'));
});

test('settings that can not work are refused at once', (t) => {
  const refused = (changes: Partial<HubSettings>, endpoint = 'https://hub.test') =>
    t.throws(() => new HubClient(hubSettings(endpoint, changes)), { instanceOf: TmaxError })?.errno;
  t.is(refused({}, 'hub.test'), 'EINVAL');
  t.is(refused({}, 'file:///etc'), 'EINVAL');
  t.is(refused({}, 'https://user:secret@hub.test'), 'EINVAL');
  t.is(refused({ caFile: '/nonexistent/ca.pem' }), 'EINVAL');
});

test('names that can not be those of a repository, a commit or a file never reach a URL', async (t) => {
  const hub = await startHub(t, FILES);
  const one = client(t, hub.endpoint);
  for (const name of ['', '../x', 'a/b/c', 'a/..', 'a b/c', 'a/b?c']) {
    t.is((await failure(t, one.resolveRevision(name, 'main'))).errno, 'EINVAL');
  }
  t.is((await failure(t, all(one.listFiles(REPOSITORY, 'main')))).errno, 'EINVAL');
  for (const path of ['', 'a//b', '../x', 'a/./b', '/a']) {
    t.is((await failure(t, one.readSmallFile(REPOSITORY, COMMIT, path, { maxBytes: 1 }))).errno, 'EINVAL');
  }
  t.is(hub.requests.all.length, 0);
});

/** A Hub behind TLS, with a certificate that only the fixture's bundle vouches for. */
async function serveSecurely(t: ExecutionContext): Promise<{ origin: string; caFile: string; tokens: unknown[] }> {
  const caFile = packagePath('test', 'fixtures', 'tls', 'certificate.pem');
  const key = readFileSync(packagePath('test', 'fixtures', 'tls', 'key.pem'));
  const tokens: unknown[] = [];
  const server = createSecureServer({ key, cert: readFileSync(caFile) }, (request, response) => {
    tokens.push(request.headers.authorization);
    response.writeHead(200, { 'content-type': 'application/json' }).end('[]');
  });
  return { origin: `https://127.0.0.1:${await listen(t, server)}`, caFile, tokens };
}

test('a certificate is trusted if the given bundle says so, and refused at once otherwise', async (t) => {
  const { origin, caFile, tokens } = await serveSecurely(t);
  t.deepEqual(await all(client(t, origin, { caFile }).listFiles(REPOSITORY, COMMIT)), []);
  const { errno, message } = await failure(t, all(client(t, origin).listFiles(REPOSITORY, COMMIT)));
  t.is(errno, 'EHOSTUNREACH');
  t.regex(message, /not trusted .*SSL_CERT_FILE/);
  t.is(tokens.length, 1);
});

test('behind TLS a proxy is a tunnel, which never sees the token', async (t) => {
  const { origin, caFile, tokens } = await serveSecurely(t);
  const tunnels: string[] = [];
  const sockets: Socket[] = [];
  const proxy = createServer().on('connect', (request, socket: Socket) => {
    tunnels.push(`${request.url} ${request.headers.authorization} ${request.headers['proxy-authorization']}`);
    const onward = connect(Number(new URL(origin).port), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
      socket.pipe(onward).pipe(socket);
    });
    sockets.push(socket, onward);
    for (const one of [socket, onward]) one.on('error', () => {});
  });
  const httpsProxy = `http://user:secret@127.0.0.1:${await listen(t, proxy)}`;
  t.teardown(() => sockets.forEach((socket) => void socket.destroy()));
  const one = client(t, origin, { caFile, proxy: { httpsProxy }, token: async () => 'hf_secret' });
  t.deepEqual(await all(one.listFiles(REPOSITORY, COMMIT)), []);
  const basic = Buffer.from('user:secret').toString('base64');
  t.deepEqual(tunnels, [`${new URL(origin).host} undefined Basic ${basic}`]);
  t.deepEqual(tokens, ['Bearer hf_secret']);
});

test('a proxy that takes the connection and says nothing is given up, and named', async (t) => {
  const sockets: Socket[] = [];
  const proxy = createServer().on('connect', (_request, socket: Socket) => sockets.push(socket.on('error', () => {})));
  const httpsProxy = `http://127.0.0.1:${await listen(t, proxy)}`;
  t.teardown(() => sockets.forEach((socket) => void socket.destroy()));
  const deadlines = { connectTimeoutMs: 50, headersTimeoutMs: 50 };
  const one = client(t, 'https://hub.test', { proxy: { httpsProxy }, ...deadlines });
  const { errno, message } = await failure(t, one.resolveRevision(REPOSITORY, 'main'));
  t.is(errno, 'EHOSTUNREACH');
  t.true(message.startsWith(`HTTPS_PROXY (${httpsProxy}) is set and leads nowhere`), message);
});
