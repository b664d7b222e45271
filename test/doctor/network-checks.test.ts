import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { FakeHub, type FakeHubOptions } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { hub } from '../../src/doctor/checks/hub.js';
import { offline, proxies, variables } from '../../src/doctor/checks/proxy.js';
import { token } from '../../src/doctor/checks/token.js';
import type { Remark } from '../../src/doctor/finding.js';
import { machine } from '../support/machine.js';
import { freePort } from '../support/nginx.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const REPOSITORY = 'test-org/test-pool';
const TOKEN = 'hf_aTokenOfTheTest';
const signal = new AbortController().signal;

async function startHub(
  t: ExecutionContext,
  options: Omit<FakeHubOptions, 'repositories'> = {},
  access: { readonly readers?: readonly string[]; readonly access?: 'private' | 'gated' } = {},
): Promise<FakeHub> {
  const { files, tasks } = smallPool(1);
  const served = await FakeHub.start({
    repositories: [repositoryOf(REPOSITORY, [taskMapFile(tasks), ...files], access)],
    ...options,
  });
  t.teardown(() => served.close());
  return served;
}

async function listen(t: ExecutionContext): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const address = server.address();
  return { server, port: typeof address === 'object' && address !== null ? address.port : 0 };
}

const errors = (remarks: readonly Remark[]) => remarks.filter(({ level }) => level === 'error');
const words = (remarks: readonly Remark[]) => remarks.map(({ level, what }) => `${level}: ${what}`).join('\n');

test('a Hub that serves everything is sound, down to the storage, and nothing is downloaded', async (t) => {
  const served = await startHub(t);
  const remarks = await hub(machine(t, { environment: { HF_ENDPOINT: served.endpoint } }), signal);
  t.true(
    remarks.every(({ level }) => level === 'ok'),
    words(remarks),
  );
  t.regex(words(remarks), /answers in \d+ ms[\s\S]*clock agrees[\s\S]*the storage \(127\.0\.0\.2:\d+\) answers/);
  const [fetched] = served.requests.filter(({ server }) => server === 'cdn');
  t.is(fetched?.headers.range, 'bytes=0-0');
});

test('a Hub that is not there is an error, and so is one that never answers, within its deadline', async (t) => {
  const endpoint = `http://127.0.0.1:${await freePort()}`;
  const [absent] = await hub(machine(t, { environment: { HF_ENDPOINT: endpoint } }), signal);
  t.is(absent?.level, 'error');
  t.regex(absent?.what ?? '', /ECONNREFUSED/);
  const { port } = await listen(t);
  const startedAtMs = performance.now();
  const [silent] = await hub(machine(t, { environment: { HF_ENDPOINT: `http://127.0.0.1:${port}` } }), signal);
  t.is(silent?.level, 'error');
  t.regex(silent?.what ?? '', /no answer within 5000 ms/);
  t.true(performance.now() - startedAtMs < 15_000);
});

test('a repository, revision or login that is not there is an error in the Hub’s own words', async (t) => {
  const served = await startHub(t, {}, { access: 'private', readers: [TOKEN] });
  const environment = { HF_ENDPOINT: served.endpoint };
  const [hidden] = errors(await hub(machine(t, { environment }), signal));
  t.regex(hidden?.what ?? '', /set HF_TOKEN if it is private/);
  const reader = { ...environment, HF_TOKEN: TOKEN };
  t.deepEqual(errors(await hub(machine(t, { environment: reader }), signal)), []);
  const [revision] = errors(await hub(machine(t, { environment: reader, words: { revision: 'nope' } }), signal));
  t.regex(revision?.what ?? '', /has no revision "nope"/);
});

test('terms that were not accepted are found, though the listing is public', async (t) => {
  const served = await startHub(t, {}, { access: 'gated', readers: [TOKEN] });
  const [gated] = errors(await hub(machine(t, { environment: { HF_ENDPOINT: served.endpoint } }), signal));
  t.regex(gated?.what ?? '', /is gated: accept its terms/);
});

test('a storage that is cut off is told apart from the Hub', async (t) => {
  const served = await startHub(t);
  served.fault({ server: 'cdn', fault: { kind: 'reset' }, requests: 'every' });
  const remarks = await hub(machine(t, { environment: { HF_ENDPOINT: served.endpoint } }), signal);
  const [cut, ...others] = errors(remarks);
  t.deepEqual(others, []);
  t.regex(cut?.what ?? '', /the storage \(127\.0\.0\.2:\d+\) does not answer/);
  t.regex(cut?.why ?? '', /firewall or proxy/);
});

test('a login page in the place of the Hub is an error', async (t) => {
  const served = await startHub(t);
  served.fault({ fault: { kind: 'html' }, requests: 'every' });
  const [portal] = errors(await hub(machine(t, { environment: { HF_ENDPOINT: served.endpoint } }), signal));
  t.regex(portal?.what ?? '', /not as a Hub does/);
});

test('a wrong clock is a warning that says by how much and which way', async (t) => {
  const served = await startHub(t);
  const { commit } = served.repository(REPOSITORY).head;
  for (const [offsetSeconds, expected] of [
    [-600, /(?:599|600|601) s ahead of/],
    [600, /(?:599|600|601) s behind/],
  ] as const) {
    served.clearFaults();
    const date = new Date(Date.now() + offsetSeconds * 1000).toUTCString();
    const body = JSON.stringify({ sha: commit });
    served.fault({
      path: /revision/,
      fault: { kind: 'status', status: 200, headers: { date }, body },
      requests: 'every',
    });
    const remarks = await hub(machine(t, { environment: { HF_ENDPOINT: served.endpoint } }), signal);
    const [skewed] = remarks.filter(({ level }) => level === 'warning');
    t.regex(skewed?.what ?? '', expected);
    t.regex(skewed?.remedy ?? '', /set-ntp/);
  }
});

test('the requests that are left are told: many, few, and none', async (t) => {
  const limits = (resolvers: number) => ({
    rateLimits: { api: { requests: 500, windowSeconds: 300 }, resolvers: { requests: resolvers, windowSeconds: 300 } },
  });
  const many = await hub(
    machine(t, { environment: { HF_ENDPOINT: (await startHub(t, limits(3000))).endpoint } }),
    signal,
  );
  t.regex(words(many), /ok: 499 of 500 requests \(api\) are left for \d+ s/);
  t.regex(words(many), /ok: 2999 of 3000 requests \(resolvers\) are left/);
  const few = await startHub(t, limits(3000));
  const reader = machine(t, { environment: { HF_ENDPOINT: few.endpoint } });
  for (let round = 0; round < 451; round += 1) await fetch(`${few.endpoint}/api/whoami-v2`);
  const spent = await hub(reader, signal);
  t.regex(words(spent), /warning: 4\d of 500 requests \(api\)/);
  const none = await startHub(t, { rateLimits: { api: { requests: 0, windowSeconds: 300 } } });
  const [over] = await hub(machine(t, { environment: { HF_ENDPOINT: none.endpoint } }), signal);
  t.is(over?.level, 'error');
  t.regex(over?.what ?? '', /429/);
  t.regex(over?.remedy ?? '', /wait for the end of the window/);
});

test('a token is found in its place, taken or refused, and never shown', async (t) => {
  const served = await startHub(t, {}, { readers: [TOKEN] });
  const environment = { HF_ENDPOINT: served.endpoint };
  const folder = temporaryFolder(t);
  const file = join(folder, 'token');
  writeFileSync(file, `${TOKEN}\n`);
  const taken = [
    await token(machine(t, { environment: { ...environment, HF_TOKEN: TOKEN } }), signal),
    await token(machine(t, { environment: { ...environment, HUGGING_FACE_HUB_TOKEN: TOKEN } }), signal),
    await token(machine(t, { environment: { ...environment, HF_HOME: folder } }), signal),
  ];
  t.deepEqual(
    taken.flat().map(({ level, what }) => [level, what]),
    [
      ['ok', 'the token from HF_TOKEN is taken: a-reader'],
      ['ok', 'the token from HUGGING_FACE_HUB_TOKEN is taken: a-reader'],
      ['ok', `the token from ${file} is taken: a-reader`],
    ],
  );
  const [none] = await token(machine(t, { environment }), signal);
  t.is(none?.level, 'note');
  const [refused] = await token(machine(t, { environment: { ...environment, HF_TOKEN: 'hf_expired' } }), signal);
  t.is(refused?.level, 'error');
  t.regex(refused?.what ?? '', /refused \(401\)/);
  t.false(JSON.stringify([...taken, refused]).includes('hf_'));
  t.regex(
    (await token(machine(t, { environment: { ...environment, HF_TOKEN: 'swordfish' } }), signal))[0]?.what ?? '',
    /"hf_"/,
  );
});

test('a proxy that leads nowhere is an error where it is used, a note where it is not, and shows no password', async (t) => {
  const dead = `http://user:pass-word@127.0.0.1:${await freePort()}`;
  const used = machine(t, { environment: { HF_ENDPOINT: 'http://hub.example', http_proxy: dead } });
  const [remark] = await proxies(used);
  t.is(remark?.level, 'error');
  t.regex(remark?.what ?? '', /^http_proxy \(http:\/\/127\.0\.0\.1:\d+\) is set and leads nowhere: ECONNREFUSED/);
  t.regex(remark?.remedy ?? '', /unset HTTP_PROXY http_proxy/);
  const unused = await proxies(machine(t, { environment: { HF_ENDPOINT: 'https://hub.example', HTTP_PROXY: dead } }));
  t.deepEqual(
    unused.map(({ level }) => level),
    ['note'],
  );
  const exempt = await proxies(
    machine(t, { environment: { HF_ENDPOINT: 'http://hub.example', HTTP_PROXY: dead, NO_PROXY: '.example' } }),
  );
  t.deepEqual(
    exempt.map(({ level }) => level),
    ['note', 'ok'],
  );
  const [offlineRemark] = await proxies({ ...used, settings: { ...used.settings, offline: true } });
  t.is(offlineRemark?.level, 'note', 'offline nobody goes through it');
  t.false(JSON.stringify([remark, unused, exempt]).includes('pass-word'));
  const { port } = await listen(t);
  const alive = {
    HF_ENDPOINT: 'http://hub.example',
    HTTP_PROXY: `127.0.0.1:${port}`,
    http_proxy: `http://127.0.0.1:${port}`,
  };
  t.deepEqual(
    (await proxies(machine(t, { environment: alive }))).map(({ level }) => level),
    ['ok', 'note'],
  );
});

test('offline is said, with the variable that says so', async (t) => {
  const [leaked] = await offline(machine(t, { environment: { HF_HUB_OFFLINE: '1' } }));
  t.is(leaked?.level, 'warning');
  t.is(leaked?.remedy, 'unset HF_HUB_OFFLINE');
  t.is((await offline(machine(t)))[0]?.level, 'ok');
  t.is((await hub(machine(t, { environment: { HF_HUB_OFFLINE: '1' } }), signal))[0]?.level, 'note');
});

test('a proxy or certificate file that no mount would start with is an error', async (t) => {
  for (const HTTPS_PROXY of ['ftp://proxy:21', 'http://[bad']) {
    const [remark, ...others] = await proxies(machine(t, { environment: { HTTPS_PROXY } }));
    t.deepEqual([remark?.level, others], ['error', []]);
    t.regex(remark?.what ?? '', /HTTPS_PROXY is not the URL of an HTTP proxy/);
  }
  const noFile = machine(t, { environment: { SSL_CERT_FILE: '/nowhere.pem' } });
  const [remark] = await hub(noFile, signal);
  t.is(remark?.level, 'error');
  t.regex(remark?.what ?? '', /SSL_CERT_FILE/);
  t.regex((await token(noFile, signal))[0]?.what ?? '', /SSL_CERT_FILE/);
});

test('variables that nobody reads are named', async (t) => {
  const environment = { TMAXFS_CACHEDIR: '/x', TMAXFS_CACHE_DIR: '/y', all_proxy: 'socks5://127.0.0.1:1' };
  const [unknown, ...others] = await variables(machine(t, { environment }));
  t.deepEqual([unknown?.level, others], ['warning', []]);
  t.regex(unknown?.what ?? '', /^TMAXFS_CACHEDIR is set/);
  t.is((await variables(machine(t)))[0]?.level, 'ok');
  t.regex((await proxies(machine(t, { environment })))[1]?.what ?? '', /^all_proxy is set, and not read here/);
});
