import { once } from 'node:events';
import { chmodSync, chownSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createSocket } from 'node:net';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { CacheLayout } from '../../src/blobs/cache-layout.js';
import { CatalogStore } from '../../src/catalog/catalog-store.js';
import { FakeHub } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { sources } from '../../src/doctor/checks/sources.js';
import { DragonflyProxy } from '../support/dragonfly-proxy.js';
import { machine } from '../support/machine.js';
import { freePort } from '../support/nginx.js';
import { packagePath } from '../support/paths.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const signal = new AbortController().signal;

async function remarksOn(
  t: ExecutionContext,
  source: readonly string[],
  environment: Record<string, string> = {},
  cacheDir?: string,
) {
  const words = { source, ...(cacheDir === undefined ? {} : { cacheDir }) };
  return sources(machine(t, { words, environment: { HF_ENDPOINT: 'http://127.0.0.1:1', ...environment } }), signal);
}

async function answering(t: ExecutionContext, status: number): Promise<string> {
  const server = createServer((_request, response) => response.writeHead(status).end()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const address = server.address();
  return `127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
}

test('the Hub alone needs no further look', async (t) => {
  t.like((await remarksOn(t, ['hub']))[0], { level: 'ok' });
});

test('every kind of source that is there is sound', async (t) => {
  const mirror = await FakeHub.start({ repositories: [repositoryOf('test-org/test-pool', smallPool(1).files)] });
  t.teardown(() => mirror.close());
  const proxy = await DragonflyProxy.start(t);
  const folder = temporaryFolder(t);
  const names = [
    `dir:${folder}`,
    `${mirror.endpoint}/datasets/{repo}/resolve/{commit}/{path}`,
    `http://${await answering(t, 403)}/{sha256}`,
    `oci://${await answering(t, 401)}/images`,
    `dragonfly://${proxy.address}`,
  ];
  const remarks = await remarksOn(t, [...names, 'hub']);
  for (const [index, name] of names.entries()) {
    t.is(remarks[index]?.level, 'ok', remarks[index]?.what);
    t.true(remarks[index]?.what.startsWith(name));
  }
  t.is(mirror.requests.filter(({ server }) => server === 'cdn').length, 0, 'no image is asked for');
});

const POOL = 'test-org/test-pool';

async function hubOf(t: ExecutionContext, images: number): Promise<FakeHub> {
  const { files, tasks } = smallPool(images);
  const hub = await FakeHub.start({ repositories: [repositoryOf(POOL, [taskMapFile(tasks), ...files])] });
  t.teardown(() => hub.close());
  return hub;
}

test.serial(
  'a URL is asked for the first byte of an image that the Hub lists, and told of where it does not have it',
  async (t) => {
    const hub = await hubOf(t, 3);
    const mirror = await hubOf(t, 3);
    const urls = ['/datasets/{repo}/resolve/{commit}/{path}', '/{sha256}?key=SECRET'].map(
      (path) => mirror.endpoint + path,
    );
    const [right, wrong] = await remarksOn(t, [...urls, 'hub'], { HF_ENDPOINT: hub.endpoint });
    t.like(right, { level: 'ok' });
    t.regex(right?.what ?? '', /answers in \d+ ms, and has images\/\d\.sif$/);
    t.is(wrong?.level, 'warning');
    t.regex(
      wrong?.what ?? '',
      /\{sha256\}\?\.\.\. answers in \d+ ms, but does not have images\/\d\.sif of test-org\/test-pool \(404\)$/,
    );
    const [asked, ...more] = mirror.requests.filter(({ server }) => server === 'cdn');
    t.is(asked?.headers.range, 'bytes=0-0');
    t.deepEqual(more, []);
  },
);

test.serial('the catalog on disk says what a URL is asked for, without the Hub, and is left as it is', async (t) => {
  const mirror = await hubOf(t, 2);
  const { commit, date } = mirror.repository(POOL).head;
  const cacheDir = temporaryFolder(t);
  const folder = new CacheLayout(cacheDir).catalogs;
  const store = new CatalogStore(folder);
  const listing = smallPool(2).files.map(({ path, sha256, sizeBytes }) => ({ path, sha256, sizeBytes }));
  await store.save({ repository: POOL, commit, date, kind: 'listing', index: '', listing, others: [] });
  await store.rememberCommit(POOL, 'main', commit);
  const usedAtMs = async () => (await store.all().next()).value?.usedAtMs;
  const savedAtMs = await usedAtMs();
  const source = `${mirror.endpoint}/datasets/{repo}/resolve/{commit}/{path}`;
  const [remark] = await remarksOn(t, [source, 'hub'], {}, cacheDir);
  t.regex(remark?.what ?? '', /, and has images\/\d\.sif$/);
  t.is(await usedAtMs(), savedAtMs);
});

test('what is not there is named, with what becomes of it', async (t) => {
  const port = await freePort();
  const names = [
    'dir:/nonexistent',
    `http://127.0.0.1:${port}/{path}`,
    `oci://127.0.0.1:${port}/images`,
    `dragonfly://127.0.0.1:${port}`,
  ];
  const remarks = await remarksOn(t, [...names, 'hub']);
  t.deepEqual(
    remarks.map(({ level }) => level),
    ['error', 'warning', 'warning', 'warning'],
  );
  for (const [index, name] of names.entries()) t.true(remarks[index]?.what.startsWith(name), remarks[index]?.what);
  t.like((await remarksOn(t, [`http://127.0.0.1:${port}/{path}`]))[0], {
    level: 'error',
    why: 'images come from there alone',
  });
});

test('a server that says yes to everything, or is broken, is a warning', async (t) => {
  for (const status of [200, 500]) {
    const [remark] = await remarksOn(t, [`http://${await answering(t, status)}/{sha256}?key=SECRET`, 'hub']);
    t.is(remark?.level, 'warning');
    t.regex(remark?.what ?? '', new RegExp(`\\{sha256\\}\\?\\.\\.\\. answers ${status} for what it can't have`));
  }
});

test('one that hangs is told within the time of a check', async (t) => {
  const server = createSocket(() => undefined).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  const [remark] = await remarksOn(t, [`http://127.0.0.1:${port}/{sha256}`, 'hub']);
  t.regex(remark?.what ?? '', /no answer within 5000 ms/);
});

test('offline, folders alone are looked at', async (t) => {
  const remarks = await remarksOn(t, [`dir:${temporaryFolder(t)}`, 'http://127.0.0.1:1/{path}'], {
    HF_HUB_OFFLINE: '1',
  });
  t.deepEqual(
    remarks.map(({ level }) => level),
    ['ok', 'note'],
  );
});

test('a folder that is published to, and not this user’s to write, is a warning, as one that can’t be entered; one that is read alone is sound', async (t) => {
  const [published, read, closed] = [temporaryFolder(t), temporaryFolder(t), temporaryFolder(t)];
  for (const folder of [published, read]) chmodSync(folder, 0o755);
  const home = temporaryFolder(t);
  chownSync(home, 1000, 1000);
  const words = [
    'doctor',
    '--json',
    '--publish',
    `dir:${published}`,
    '--source',
    `dir:${read},dir:${closed}`,
    '--offline',
  ];
  const { stdout } = await execa(process.execPath, [packagePath('bin', 'tmaxfs.js'), ...words], {
    ...{ uid: 1000, gid: 1000, reject: false, extendEnv: false },
    env: { PATH: process.env['PATH'], HOME: home },
  });
  const { findings } = JSON.parse(stdout) as { readonly findings: readonly Record<string, string>[] };
  const [first, second, third, ...more] = findings.filter(({ check }) => check === 'sources');
  t.like(first, { level: 'warning', what: `dir:${published} can't be written by this user` });
  t.like(second, { level: 'ok', what: `dir:${read} is there` });
  t.like(third, { level: 'warning', what: `dir:${closed} can't be entered by this user` });
  t.deepEqual(more, []);
});
