import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { MountedPool } from '../support/mounted-pool.js';
import { freePort, startNginx } from '../support/nginx.js';
import { contentOf, smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const TOKEN = 'hf_onlyForTheHub';
const MIB = 2 ** 20;

async function areRight(t: ExecutionContext, pool: MountedPool): Promise<void> {
  const { files } = pool.options;
  const paths = files.map((_, index) => pool.path(`v/t${index}.sif`));
  const { stdout } = await pool.run('sha256sum', paths);
  t.is(stdout, files.map(({ sha256 }, index) => `${sha256}  ${paths[index]}`).join('\n'));
}

test.serial(
  'through a mirror with a path, bytes from nginx as CDN: one resolve and each range once, no token off its host',
  async (t) => {
    const { files, tasks } = smallPool(3, 20 * MIB);
    const folder = temporaryFolder(t);
    const port = await freePort();
    const env = { HF_ENDPOINT: `http://127.0.0.1:${port}/mirror/`, HF_TOKEN: TOKEN };
    const pool = await MountedPool.prepare(t, { files, tasks, env, readers: [TOKEN], hub: { basePath: '/mirror' } });
    mkdirSync(join(folder, 'storage'));
    for (const file of files) writeFileSync(join(folder, 'storage', basename(file.path)), contentOf(file));
    const nginx = await startNginx(
      folder,
      port,
      `server {
      listen 127.0.0.1:${port};
      location /mirror/ { proxy_pass ${pool.hub.endpoint}/; proxy_redirect ${pool.hub.cdnOrigin}/ http://127.0.0.3:${port}/; }
    }
    server {
      listen 127.0.0.3:${port};
      root ${folder}/storage;
      # The name of a file stands in the query of its signed URL alone.
      if ($args ~ "filename%3D%22([^%]+)%22") { set $name $1; }
      location / { rewrite ^ /$name? break; }
    }`,
    );
    t.teardown(() => nginx.stop());
    await pool.mount();
    await areRight(t, pool);

    const requests = await nginx.log();
    t.true(requests.every(({ method }) => method === 'GET'));
    for (const { path, sizeBytes } of files) {
      t.is(
        requests.filter(({ uri }) => uri.startsWith('/mirror/') && uri.endsWith(`/${path}`)).length,
        1,
        'one resolve',
      );
      const ranges = requests.filter(({ server, uri }) => server === '127.0.0.3' && uri.includes(basename(path)));
      t.true(ranges.every(({ status, authorization }) => status === '206' && authorization === '-'));
      const parts = ranges.map(({ range }) => /^bytes=(\d+)-(\d+)$/.exec(range)?.slice(1).map(Number) ?? []);
      parts.sort(([a = 0], [b = 0]) => a - b);
      t.is(parts.length, Math.ceil(sizeBytes / (4 * MIB)), 'over several connections');
      let at = 0;
      for (const [start, end = 0] of parts) {
        t.is(start, at, 'no byte is asked for twice, none left out');
        at = end + 1;
      }
      t.is(at, sizeBytes);
    }
    t.true(requests.some(({ server, authorization }) => server === '127.0.0.1' && authorization === `Bearer ${TOKEN}`));
    t.is(pool.hub.requests.filter(({ server }) => server === 'cdn').length, 0);
  },
);

test.serial('through nginx as proxy of HTTP: everything goes that way, but what NO_PROXY names', async (t) => {
  const { files, tasks } = smallPool(2);
  for (const noProxy of ['', '127.0.0.2']) {
    const folder = temporaryFolder(t);
    const port = await freePort();
    const env = { HTTP_PROXY: `http://127.0.0.1:${port}`, NO_PROXY: noProxy };
    const pool = await MountedPool.prepare(t, { files, tasks, env });
    const forward = 'proxy_pass http://$http_host$request_uri; proxy_set_header Host $http_host;';
    const nginx = await startNginx(folder, port, `server { listen 127.0.0.1:${port}; location / { ${forward} } }`);
    t.teardown(() => nginx.stop());
    await pool.mount();
    await areRight(t, pool);
    const storage = (uri: string) => uri.startsWith('/repos/');
    const seen = await nginx.log();
    const served = pool.hub.requests.all;
    t.is(seen.filter(({ uri }) => !storage(uri)).length, served.filter(({ server }) => server === 'hub').length);
    t.is(seen.filter(({ uri }) => storage(uri)).length, noProxy === '' ? files.length : 0);
    t.is(served.filter(({ server }) => server === 'cdn').length, files.length);
  }
});

test.serial('256 distinct cold images opened at once: all right, one resolve and one transfer each', async (t) => {
  const { files, tasks } = smallPool(256, 100_000);
  const pool = await MountedPool.start(t, { files, tasks });
  const folder = temporaryFolder(t);
  const list = join(folder, 'list');
  writeFileSync(list, files.map((_, index) => pool.path(`v/t${index}.sif\n`)).join(''));
  const { stdout } = await pool.run('xargs', ['-P', '256', '-n', '1', '-a', list, 'sha256sum']);
  const sums = new Map(stdout.split('\n').map((line) => [basename(line), line.slice(0, 64)]));
  for (const [index, { sha256 }] of files.entries()) t.is(sums.get(`t${index}.sif`), sha256);
  for (const { path } of files) {
    t.is(pool.hub.requests.about(path, 'hub').length, 1);
    t.is(pool.hub.requests.about(path, 'cdn').length, 1);
  }
  t.true(pool.hub.requests.all.every(({ method }) => method === 'GET'));
});
