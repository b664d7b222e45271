/** Images through the HTTP proxy of Dragonfly: the headers that make one task of an image, against a stand-in for that proxy. */

import { createHash } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { DragonflyProxy } from '../support/dragonfly-proxy.js';
import { MountedPool } from '../support/mounted-pool.js';
import { contentOf, smallPool } from '../support/small-pool.js';

const TOKEN = 'hf_onlyForTheHub';
const MIB = 2 ** 20;

async function isRight(t: ExecutionContext, pool: MountedPool, index: number): Promise<void> {
  const { stdout, stderr } = await pool.run('sha256sum', [pool.path(`v/t${index}.sif`)]);
  t.true(stdout.startsWith(pool.options.files[index]?.sha256 ?? '?'), stderr);
}

const storageRequests = (pool: MountedPool) => pool.hub.requests.filter(({ server }) => server === 'cdn').length;

test.serial(
  'an image is one task for all nodes: it leaves the Hub once, by one request a node, without any token',
  async (t) => {
    const { files, tasks } = smallPool(2, 10 * MIB);
    const proxy = await DragonflyProxy.start(t);
    const args = ['--source', `dragonfly://${proxy.address}`, '--source', 'hub'];
    const first = await MountedPool.start(t, { files, tasks, args, env: { HF_TOKEN: TOKEN }, readers: [TOKEN] });
    const second = await MountedPool.start(t, { files, tasks, args, env: { HF_ENDPOINT: first.hub.endpoint } });
    for (const pool of [first, second]) for (const index of files.keys()) await isRight(t, pool, index);
    t.is(proxy.backToSource, files.length);
    t.is(storageRequests(first), files.length);
    t.is(proxy.requests.length, 2 * files.length);
    const commit = first.hub.repository('test-org/test-pool').head.commit;
    for (const [index, { path, sha256, sizeBytes }] of files.entries()) {
      const [seen, again] = proxy.requests.filter(({ url }) => url.endsWith(path));
      t.is(seen?.url, `${first.hub.endpoint}/datasets/test-org/test-pool/resolve/${commit}/${path}`);
      t.is(seen?.taskId, createHash('sha256').update(`sha256:${sha256}`).digest('hex'));
      t.is(again?.taskId, seen?.taskId);
      t.like(
        seen?.headers,
        {
          'x-dragonfly-use-p2p': 'true',
          'x-dragonfly-application': 'tmaxfs',
          'x-dragonfly-piece-length': '32mib',
          range: `bytes=0-${sizeBytes - 1}`,
          authorization: undefined,
        },
        `image ${index}`,
      );
    }
    t.is((await first.status()).sources[0]?.name, `dragonfly://${proxy.address}`);
  },
);

test.serial('an https address goes to the proxy whole, without a tunnel', async (t) => {
  const { files, tasks } = smallPool(1);
  const proxy = await DragonflyProxy.start(t);
  proxy.elsewhere.set(`https://store.example/${files[0]?.sha256}?key=SECRET`, contentOf(files[0]));
  const args = ['--source', `dragonfly://${proxy.address}/https://store.example/{sha256}?key=SECRET`];
  const pool = await MountedPool.start(t, { files, tasks, args });
  await isRight(t, pool, 0);
  t.is(proxy.requests[0]?.headers.host, 'store.example');
  t.is((await pool.status()).sources[0]?.name, `dragonfly://${proxy.address}/https://store.example/{sha256}?...`);
});

for (const [what, fail] of [
  ['is gone', (proxy: DragonflyProxy) => proxy.stop()],
  ['has reached its own limit', async (proxy: DragonflyProxy) => Object.assign(proxy, { refusal: 429 })],
  ['refuses by its block list', async (proxy: DragonflyProxy) => Object.assign(proxy, { refusal: 403 })],
] as const) {
  test.serial(`a proxy that ${what} is passed over, and left alone after some times`, async (t) => {
    const { files, tasks } = smallPool(4);
    const proxy = await DragonflyProxy.start(t);
    const args = ['--source', `dragonfly://${proxy.address}`, '--source', 'hub'];
    const pool = await MountedPool.start(t, { files, tasks, args });
    await isRight(t, pool, 0);
    t.is(proxy.requests.length, 1);
    await fail(proxy);
    for (const index of [1, 2, 3]) await isRight(t, pool, index);
    t.like((await pool.status()).sources[0], { health: { isLeftAlone: true, failuresInARow: 3 } });
  });
}

test.serial(
  'what the Hub gives to nobody without a token comes from the Hub itself, and is no fault of the proxy',
  async (t) => {
    const { files, tasks } = smallPool(4);
    const proxy = await DragonflyProxy.start(t);
    const args = ['--source', `dragonfly://${proxy.address}`, '--source', 'hub'];
    const pool = await MountedPool.start(t, { files, tasks, args, env: { HF_TOKEN: TOKEN }, readers: [TOKEN] });
    const refused = pool.hub.fault({
      server: 'hub',
      path: 'images/0.sif',
      fault: { kind: 'status', status: 401 },
      requests: [1],
    });
    await isRight(t, pool, 0);
    t.is(refused.hits, 1);
    t.like((await pool.status()).sources[0], { health: { isLeftAlone: false, failuresInARow: 0 } });
  },
);
