/** Images out of a real registry, and into it: however it wants to be asked, and whoever it sends on to. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { registrySecret } from '../../src/daemon/registry-secret.js';
import { RegistryDestination } from '../../src/destinations/registry-destination.js';
import { TmaxError } from '../../src/errors.js';
import { RateGovernor } from '../../src/sources/rate-governor.js';
import { parseRegistry } from '../../src/sources/registry.js';
import { RemoteSource } from '../../src/sources/remote-source.js';
import { type Blob, blobOf } from '../support/blob-cache.js';
import { recordingLog } from '../support/hub.js';
import { freePort, startNginx } from '../support/nginx.js';
import { loggedIn, type RegistryServer, startRegistry, storedBlob } from '../support/registry.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;
const never = new AbortController().signal;
const BLOB = blobOf('a', 9 * MIB + 5);
const HTTP = {
  userAgent: 'test',
  connectTimeoutMs: 5000,
  headersTimeoutMs: 10_000,
  idleTimeoutMs: 10_000,
  minBytesPerSecond: 0,
  speedWindowMs: 20_000,
};
const BRIEF = { baseMs: 10, maxMs: 50, maxAttemptsWithoutProgress: 6, totalBudgetMs: 60_000, maxPauseMs: 1000 };

/** Source and destination of one place, for who has logged in, or not. */
function client(t: ExecutionContext, place: string, config = temporaryFolder(t)) {
  const registry = parseRegistry(place);
  const secret = registrySecret(join(config, 'config.json'), registry);
  const identity = { name: place, locator: { kind: 'registry', registry }, secret } as const;
  const settings = { ...HTTP, log: recordingLog().log, retry: BRIEF, threads: 1 };
  const source = new RemoteSource(identity, settings, new RateGovernor());
  const destination = new RegistryDestination(registry, { http: HTTP, secret });
  for (const part of [source, destination]) t.teardown(() => part.close());
  const partial = join(temporaryFolder(t), 'partial');
  return {
    download: ({ address }: Blob) => source.download(address, partial, { signal: never }),
    put: (blob: Blob, path = fileOf(t, blob)) => destination.put(blob.address, path, { signal: never, mends: false }),
    has: ({ address }: Blob) => destination.has(address, never),
    content: () => readFileSync(partial),
  };
}

function fileOf(t: ExecutionContext, { content }: Blob): string {
  const path = join(temporaryFolder(t), 'blob');
  writeFileSync(path, content);
  return path;
}

const refusal = async (t: ExecutionContext, act: () => Promise<unknown>) =>
  (await t.throwsAsync(act, { instanceOf: TmaxError })) ?? t.fail();

for (const auth of ['none', 'basic', 'token'] as const) {
  test(`what was pushed is pulled by its digest, in ranges; login: ${auth}`, async (t) => {
    const server = await startRegistry(t, { auth });
    const { put, has, download, content } = client(t, server.place, loggedIn(t, server));
    const absent = await refusal(t, () => download(BLOB));
    t.is(absent.errno, 'EHOSTUNREACH');
    t.is(absent.message, `a.sif is not at ${server.place}`);
    t.false(await has(BLOB));
    t.is(await put(BLOB), 'written');
    t.true(await has(BLOB));
    t.is(await put(BLOB), 'there');
    const { sha256, attempts } = await download(BLOB);
    t.is(sha256, BLOB.address.sha256);
    t.true(content().equals(BLOB.content));
    t.true(attempts > 1, 'it came in ranges');
  });
}

test('who has not logged in pulls where anybody may, and is told what to do where not', async (t) => {
  const [basic, token] = [await startRegistry(t, { auth: 'basic' }), await startRegistry(t, { auth: 'token' })];
  await client(t, token.place, loggedIn(t, token)).put(BLOB);
  const anonymous = client(t, token.place);
  t.is((await anonymous.download(BLOB)).sha256, BLOB.address.sha256);
  for (const act of [
    () => anonymous.put(blobOf('b')),
    () => client(t, basic.place).download(BLOB),
    () => client(t, basic.place).put(BLOB),
    () => client(t, basic.place, loggedIn(t, basic, 'wrong')).download(BLOB),
    () => client(t, token.place, loggedIn(t, token, 'wrong')).download(BLOB),
  ]) {
    const error = await refusal(t, act);
    t.is(error.errno, 'EACCES', error.message);
    t.regex(error.message, /docker login|answers 40[13]/);
    t.notRegex(error.message, /wrong|Basic|Bearer /);
  }
});

test('what was pushed outlives the registry’s garbage collection, and what was not referred to does not', async (t) => {
  const server = await startRegistry(t);
  const { put, download } = client(t, server.place);
  await put(BLOB);
  const stray = blobOf('stray', MIB);
  const upload = await fetch(`http://127.0.0.1:${server.port}/v2/pool/images/blobs/uploads/`, { method: 'POST' });
  const location = `${upload.headers.get('location')}&digest=sha256:${stray.address.sha256}`;
  await fetch(location, { method: 'PUT', body: new Uint8Array(stray.content) });
  t.true(existsSync(storedBlob(server.storage, stray.address.sha256)));
  await server.stop();
  await server.collectGarbage();
  await server.start();
  t.false(existsSync(storedBlob(server.storage, stray.address.sha256)));
  t.is((await download(BLOB)).sha256, BLOB.address.sha256);
});

test('a file that is not the blob any more is refused by the registry, and not there afterwards', async (t) => {
  const server = await startRegistry(t);
  const { put, has } = client(t, server.place);
  const changed = fileOf(t, { ...BLOB, content: Buffer.alloc(BLOB.content.length, 'x') });
  t.is((await refusal(t, () => put(BLOB, changed))).errno, 'EBADMSG');
  t.false(await has(BLOB));
});

test('a registry that takes nothing, or is not there, says so in the error', async (t) => {
  const readOnly = await startRegistry(t, { isReadOnly: true });
  t.is((await refusal(t, () => client(t, readOnly.place).put(BLOB))).errno, 'EROFS');
  await readOnly.stop();
  const gone = client(t, readOnly.place);
  for (const act of [() => gone.put(BLOB), () => gone.download(BLOB)]) {
    t.is((await refusal(t, act)).errno, 'EHOSTUNREACH');
  }
});

test('a push that was cut off by the registry’s end is done over by the next', async (t) => {
  const server = await startRegistry(t);
  const { put, has } = client(t, server.place);
  const large = blobOf('large', 64 * MIB);
  const cut = put(large);
  const uploads = join(server.storage, 'docker/registry/v2/repositories/pool/images/_uploads');
  while (!existsSync(uploads)) await new Promise(setImmediate);
  await server.stop();
  const outcome = await cut.catch((error: TmaxError) => error.errno);
  t.true(['EHOSTUNREACH', 'written'].includes(outcome));
  await server.start();
  t.true(['written', 'there'].includes(await put(large)));
  t.true(await has(large));
});

/** In front of a registry's storage: the registry sends on to it, as it does to a store of objects. */
async function withStore(t: ExecutionContext, server: RegistryServer) {
  const port = await freePort();
  const folder = temporaryFolder(t);
  const nginx = await startNginx(
    folder,
    port,
    `server { listen 127.0.0.1:${port};
       location ~ "^/v2/.*/blobs/sha256:(..)(.*)$" {
         return 307 http://127.0.0.2:${port}/docker/registry/v2/blobs/sha256/$1/$1$2/data; }
       location / { proxy_pass http://127.0.0.1:${server.port}; } }
     server { listen 127.0.0.2:${port}; root ${server.storage}; }`,
  );
  t.teardown(() => nginx.stop());
  return { nginx, place: `oci://127.0.0.1:${port}/pool/images` };
}

test('where the registry sends on to a store, that is asked without what the registry was', async (t) => {
  const server = await startRegistry(t, { auth: 'basic' });
  await client(t, server.place, loggedIn(t, server)).put(BLOB);
  const { nginx, place } = await withStore(t, server);
  const [, port] = /:(\d+)\/pool/.exec(place) ?? [];
  const { download, content } = client(t, place, loggedIn(t, { ...server, port: Number(port) }));
  t.is((await download(BLOB)).sha256, BLOB.address.sha256);
  t.true(content().equals(BLOB.content));
  const stored = (await nginx.log()).filter((request) => request.server === '127.0.0.2');
  t.true(stored.length > 1);
  for (const { authorization } of stored) t.is(authorization, '-');
  const own = (await nginx.log()).filter(({ uri }) => uri.includes('/blobs/sha256:'));
  t.true(own.length > 0 && own.every(({ authorization }) => authorization.startsWith('Basic ')));
});

test('wrong bytes of a registry’s disk are told by their digest', async (t) => {
  const server = await startRegistry(t);
  const { put, download } = client(t, server.place);
  await put(BLOB);
  const wrong = Buffer.from(BLOB.content);
  wrong[5] = 255 - (wrong[5] ?? 0);
  const stored = storedBlob(server.storage, BLOB.address.sha256);
  mkdirSync(dirname(stored), { recursive: true });
  writeFileSync(stored, wrong);
  t.not((await download(BLOB)).sha256, BLOB.address.sha256);
});

test('how a registry is named: by https, but on loopback, or where http is asked for', (t) => {
  for (const [text, origin, name] of [
    ['oci://registry.example/pool', 'https://registry.example', 'pool'],
    ['oci://registry.example:5000/a/b-c/d_e', 'https://registry.example:5000', 'a/b-c/d_e'],
    ['oci+http://registry.example:5000/pool', 'http://registry.example:5000', 'pool'],
    ['oci://localhost:5000/pool', 'http://localhost:5000', 'pool'],
    ['oci://[::1]:5000/pool', 'http://[::1]:5000', 'pool'],
  ] as const) {
    t.deepEqual(parseRegistry(text), { origin, name, shown: text });
  }
  for (const text of [
    'oci://registry.example',
    'oci://registry.example/',
    'oci:///pool',
    'oci://registry.example/Pool',
    'oci://registry.example/pool:tag',
    'oci://registry.example/../pool',
    'oci://user:password@registry.example/pool',
    'oci+https://registry.example/pool',
  ]) {
    const error = t.throws(() => parseRegistry(text), { instanceOf: TmaxError });
    t.is(error?.errno, 'EINVAL', text);
    t.notRegex(error?.message ?? '', /user:password/);
  }
});

test('logins are read anew when they change; a file that is none is named', async (t) => {
  const folder = temporaryFolder(t);
  const file = join(folder, 'config.json');
  const secret = registrySecret(file, parseRegistry('oci://registry.example:5000/pool'));
  t.is(await secret(), undefined);
  writeFileSync(file, JSON.stringify({ auths: { 'registry.example:5000': { auth: 'dXNlcjpwYXNz' }, other: {} } }));
  t.is(await secret(), 'dXNlcjpwYXNz');
  writeFileSync(file, '{"auths": secret');
  const error = await refusal(t, secret);
  t.is(error.errno, 'EACCES');
  t.notRegex(error.message, /secret/);
});
