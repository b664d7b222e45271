/** The configurations of docs/cluster, run by a real nginx: what the first node fetches the others have from there, and the Hub is not asked. */

import { chmodSync, mkdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { request } from 'undici';
import { memoryDisk } from '../support/memory-disk.js';
import { MountedPool, type MountedPoolOptions } from '../support/mounted-pool.js';
import { freePort, type Nginx, startNginx } from '../support/nginx.js';
import { hubCacheFile, nginxFile } from '../support/nginx-file.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;
const TEMPLATE = 'datasets/{repo}/resolve/{commit}/{path}';

async function areRight(t: ExecutionContext, pool: MountedPool): Promise<void> {
  const paths = pool.options.files.map((_, index) => pool.path(`v/t${index}.sif`));
  const { stdout } = await pool.run('sha256sum', paths);
  t.is(stdout, pool.options.files.map(({ sha256 }, index) => `${sha256}  ${paths[index]}`).join('\n'));
}

/** Another daemon before the same Hub. */
async function anotherNode(t: ExecutionContext, first: MountedPool, options: MountedPoolOptions): Promise<MountedPool> {
  const env = { HF_ENDPOINT: first.hub.endpoint, ...options.env };
  return MountedPool.start(t, { ...options, env });
}

const imageRequests = ({ hub }: MountedPool, server: 'hub' | 'cdn') =>
  hub.requests.filter((one) => one.server === server && one.file?.startsWith('images/') === true);

async function startCache(
  t: ExecutionContext,
  pool: MountedPool,
  disk?: string,
): Promise<Nginx & { readonly origin: string }> {
  const folder = temporaryFolder(t);
  const port = await freePort();
  mkdirSync(disk ?? join(folder, 'cache'), { recursive: true });
  const nginx = await startNginx(folder, port, hubCacheFile(folder, `127.0.0.1:${port}`, pool.hub, disk));
  t.teardown(() => nginx.stop());
  return { ...nginx, origin: `http://127.0.0.1:${port}` };
}

for (const [what, use] of [
  ['as a source', (origin: string) => ({ args: ['--source', `${origin}/${TEMPLATE}`, '--source', 'hub'] })],
  ['as the Hub', (origin: string) => ({ env: { HF_ENDPOINT: origin } })],
] as const) {
  test.serial(
    `a read-through cache ${what}: each range of an image leaves the Hub once, for however many nodes`,
    async (t) => {
      const { files, tasks } = smallPool(3, 10 * MIB);
      const first = await MountedPool.prepare(t, { files, tasks });
      const cache = await startCache(t, first);
      const options = { files, tasks, ...use(cache.origin) };
      const nodes = [await anotherNode(t, first, options), await anotherNode(t, first, options)];
      // At once: whoever comes second waits for what the first fetches.
      await Promise.all(nodes.map((node) => areRight(t, node)));
      for (const { path, sizeBytes } of files) {
        t.is(imageRequests(first, 'hub').filter(({ file }) => file === path).length, 1, 'one question where it is');
        const slices = imageRequests(first, 'cdn')
          .filter(({ file }) => file === path)
          .map(({ headers }) => headers.range);
        t.is(slices.length, Math.ceil(sizeBytes / (4 * MIB)));
        t.is(new Set(slices).size, slices.length, 'each range once');
      }
      const askedSoFar = imageRequests(first, 'cdn').length + imageRequests(first, 'hub').length;
      await areRight(t, await anotherNode(t, first, options));
      t.is(
        imageRequests(first, 'cdn').length + imageRequests(first, 'hub').length,
        askedSoFar,
        'a third node asks nothing of it',
      );
      const name = what === 'as the Hub' ? 'hub' : `${cache.origin}/${TEMPLATE}`;
      for (const node of nodes)
        t.truthy(await node.logged(({ msg, source }) => msg === 'fetched v/t0' && source === name));
      if (what === 'as the Hub') t.is(first.hub.requests.filter(({ url }) => url.includes('/tree/')).length, 1);
    },
  );
}

test.serial(
  'a read-through cache follows the Hub to its storage alone, and passes on what the Hub refuses',
  async (t) => {
    const { files, tasks } = smallPool(2);
    const pool = await MountedPool.prepare(t, { files, tasks });
    const { origin } = await startCache(t, pool);
    const commit = pool.hub.repository('test-org/test-pool').head.commit;
    const statusOf = async (path: string, method: 'GET' | 'POST' = 'GET') => {
      const { statusCode, body } = await request(`${origin}/${path}`, { method });
      await body.dump();
      return statusCode;
    };
    const resolve = `datasets/test-org/test-pool/resolve/${commit}`;
    t.is(await statusOf(`${resolve}/images/0.sif`), 200);
    t.is(await statusOf(`${resolve}/images/0.sif?another=query`), 200);
    t.is(imageRequests(pool, 'cdn').length, 1, 'the query is no part of the key');
    t.is(await statusOf(`${resolve}/nope.sif`), 404);
    t.is(await statusOf('anything/else'), 404);
    t.is(await statusOf(`${resolve}/images/0.sif`, 'POST'), 403);
    const elsewhere = { kind: 'status', status: 302, headers: { location: 'http://127.0.0.1:1/secret' } } as const;
    pool.hub.fault({ server: 'hub', path: 'images/1.sif', fault: elsewhere, requests: 'every' });
    t.is(await statusOf(`${resolve}/images/1.sif`), 502);
  },
);

test.serial('a read-through cache whose disk is full costs no open its image', async (t) => {
  const { files, tasks } = smallPool(4, 6 * MIB);
  const prepared = await MountedPool.prepare(t, { files, tasks });
  const disk = await memoryDisk(t, 9 * MIB);
  chmodSync(disk.path, 0o777);
  const cache = await startCache(t, prepared, disk.path);
  const args = ['--source', `${cache.origin}/${TEMPLATE}`, '--source', 'hub'];
  const pool = await anotherNode(t, prepared, { files, tasks, args });
  await areRight(t, pool);
  t.true(disk.usedBytes() > 4 * MIB, 'it kept what it could');
  const lines = await pool.logged(({ msg }) => String(msg).startsWith('fetched v/'), files.length);
  t.true(
    lines.some(({ source }) => source === 'hub'),
    'what it could not keep it did not give',
  );
});

test.serial('the cache of one node is shown to the others, its proven images and nothing else', async (t) => {
  const { files, tasks } = smallPool(3);
  const first = await MountedPool.start(t, { files, tasks });
  await areRight(t, first);
  const folder = temporaryFolder(t);
  const port = await freePort();
  const places = { 'listen 8750;': `listen 127.0.0.1:${port};`, '/var/cache/tmaxfs': first.cacheDirectory };
  const nginx = await startNginx(folder, port, nginxFile('nginx-blobs.conf', places));
  t.teardown(() => nginx.stop());
  const origin = `http://127.0.0.1:${port}`;
  const args = ['--source', `${origin}/blobs/{sha256:2}/{sha256}`, '--source', 'hub'];
  const second = await MountedPool.start(t, { files, tasks, args });
  await areRight(t, second);
  t.deepEqual(imageRequests(second, 'cdn'), []);
  for (const path of ['blobs/', 'proofs/', 'blobs/../reservations/lock', 'catalogs/', '']) {
    const { statusCode, body } = await request(`${origin}/${path}`);
    await body.dump();
    t.is(statusCode, 404, path);
  }
  t.is(statSync(first.cacheDirectory).mode & 0o055, 0o055, 'another user may look into it');
});
