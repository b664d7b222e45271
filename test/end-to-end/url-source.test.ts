/** A mount whose images come from URLs: a real nginx, by digest and by path, before the Hub. */

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'ava';
import { flipBit } from '../support/bit-rot.js';
import { MountedPool } from '../support/mounted-pool.js';
import { freePort, type Nginx, startNginx } from '../support/nginx.js';
import { getText, Scrape } from '../support/scrape.js';
import { contentOf, smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const TOKEN = 'hf_onlyForTheHub';
type Lifetime = Parameters<typeof temporaryFolder>[0];

/** Serves files, by their paths; `further`: lines of its location. */
async function serve(
  t: Lifetime,
  files: Readonly<Record<string, Buffer>>,
  further = '',
): Promise<Nginx & { readonly origin: string; readonly root: string }> {
  const folder = temporaryFolder(t);
  const root = join(folder, 'files');
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  const port = await freePort();
  const block = `server { listen 127.0.0.1:${port}; root ${root}; location / { ${further} } }`;
  const nginx = await startNginx(folder, port, block);
  t.teardown(() => nginx.stop());
  return { ...nginx, origin: `http://127.0.0.1:${port}`, root };
}

const storageRequests = (pool: MountedPool) => pool.hub.requests.filter(({ server }) => server === 'cdn').length;

for (const [template, place] of [
  ['blobs/{sha256:2}/{sha256}', (sha256: string) => `blobs/${sha256.slice(0, 2)}/${sha256}`],
  [
    'datasets/{repo}/resolve/main/{path}?key=SECRET',
    (_: string, path: string) => `datasets/test-org/test-pool/resolve/main/${path}`,
  ],
] as const) {
  test.serial(
    `images come from ${template}, proven like any other, with no request to the Hub and no token`,
    async (t) => {
      const { files, tasks } = smallPool(3);
      const server = await serve(
        t,
        Object.fromEntries(files.map((file) => [place(file.sha256, file.path), contentOf(file)])),
      );
      const source = `${server.origin}/${template}`;
      const args = ['--source', source, '--source', 'hub'];
      const pool = await MountedPool.start(t, { files, tasks, args, env: { HF_TOKEN: TOKEN }, readers: [TOKEN] });
      for (const [index, { sha256 }] of files.entries()) {
        t.true((await pool.run('sha256sum', [pool.path(`v/t${index}.sif`)])).stdout.startsWith(sha256));
      }
      t.is(storageRequests(pool), 0);
      t.is((await server.log()).length, files.length);
      t.true((await server.log()).every(({ status, authorization }) => status === '206' && authorization === '-'));
      const name = source.replace('SECRET', '').replace('?key=', '?...');
      const status = await pool.status();
      t.deepEqual(
        status.sources.map((one) => one.name),
        [name, 'hub'],
      );
      const labels = `{source="${name}",outcome="fetched"}`;
      const socketPath = (await pool.run('getfattr', ['--only-values', '-n', 'user.tmaxfs.control', pool.mountpoint]))
        .stdout;
      t.is(new Scrape(await getText({ socketPath, path: '/metrics' })).value(`tmaxfs_fetch_seconds_count${labels}`), 3);
      const metrics = await pool.tmaxfs(['status', pool.mountpoint]);
      t.true(metrics.stdout.includes(`from ${name}, hub`));
      t.false(
        [JSON.stringify(status), metrics.stdout, readFileSync(pool.logFile, 'utf8')].some((text) =>
          text.includes('SECRET'),
        ),
      );
    },
  );
}

test.serial('what a server does not have, or has wrong, comes from the Hub, and the log says why', async (t) => {
  const { files, tasks } = smallPool(3);
  const [right, damaged] = files;
  const server = await serve(
    t,
    Object.fromEntries([right, damaged].map((file) => [file?.path ?? '', contentOf(file)])),
  );
  flipBit(join(server.root, damaged?.path ?? ''), 5000);
  const source = `${server.origin}/{path}`;
  const pool = await MountedPool.start(t, { files, tasks, args: ['--source', source, '--source', 'hub'] });
  for (const [index, { sha256 }] of files.entries()) {
    t.true((await pool.run('sha256sum', [pool.path(`v/t${index}.sif`)])).stdout.startsWith(sha256));
  }
  t.deepEqual(
    pool.hub.requests.filter((request) => request.server === 'cdn').map(({ file }) => file),
    ['images/1.sif', 'images/2.sif'],
  );
  t.truthy(await pool.logged(({ code, source: from }) => code === 'sha256-mismatch' && from === source));
});

test.serial('a server that redirects is followed, one without end is passed over', async (t) => {
  const { files, tasks } = smallPool(1);
  const target = await serve(t, { 'there.sif': contentOf(files[0]) });
  const server = await serve(t, {}, `if ($uri ~ ^/good/) { return 302 ${target.origin}/there.sif; } return 302 $uri;`);
  for (const [folder, hits] of [
    ['good', 0],
    ['bad', 1],
  ] as const) {
    const args = ['--source', `${server.origin}/${folder}/{path}`, '--source', 'hub'];
    const pool = await MountedPool.start(t, { files, tasks, args });
    t.true((await pool.run('sha256sum', [pool.path('v/t0.sif')])).stdout.startsWith(files[0]?.sha256 ?? '?'));
    t.is(storageRequests(pool), hits);
  }
  t.is((await target.log()).length, 1);
});

test.serial(
  'without the network no URL is asked; a URL with a password in it is refused and not repeated',
  async (t) => {
    const { files, tasks } = smallPool(1);
    const server = await serve(t, { [files[0]?.path ?? '']: contentOf(files[0]) });
    const online = await MountedPool.start(t, { files, tasks });
    await online.tmaxfs(['unmount', online.mountpoint]);
    const { cacheDirectory } = online;
    const args = ['--offline', '--source', `${server.origin}/{path}`];
    const pool = await MountedPool.start(t, { files, tasks, cacheDirectory, args });
    t.regex((await pool.run('cat', [pool.path('v/t0.sif')])).stderr, /No route to host/);
    t.is((await server.log()).length, 0);
    const refused = await MountedPool.prepare(t, {
      files,
      tasks,
      env: { TMAXFS_SOURCE: 'http://me:SECRET@a/{path},hub' },
    });
    const { exitCode, stderr } = await refused.tryMount();
    t.is(exitCode, 2);
    t.regex(stderr, /--source \(1 of 2\): this URL may hold no user and password/);
    t.notRegex(stderr, /SECRET/);
  },
);

test.serial('status tells what each of several sources has brought, and what was not there', async (t) => {
  const { files, tasks } = smallPool(3);
  const [first] = files;
  if (first === undefined) return t.fail();
  const server = await serve(t, { [first.path]: contentOf(first) });
  const source = `${server.origin}/{path}`;
  const pool = await MountedPool.start(t, { files, tasks, args: ['--source', source, '--source', 'hub'] });
  for (const index of files.keys()) await pool.run('cat', [pool.path(`v/t${index}.sif`)]);
  const { stdout } = await pool.tmaxfs(['status', pool.mountpoint]);
  t.true(stdout.includes(`  ${source}  1 brought, 2 not there\n`), stdout);
  t.true(stdout.includes('  hub       2 brought, 0 not there\n'), stdout);
  const health = (await pool.status()).sources.map(({ health: { brought, refused } }) => [brought, refused]);
  t.deepEqual(health, [
    [1, 2],
    [2, 0],
  ]);
});
