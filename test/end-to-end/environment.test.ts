import { readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { MountedPool, type MountedPoolOptions, POOL_NAME } from '../support/mounted-pool.js';
import { freePort } from '../support/nginx.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const OLD_TOKEN = 'hf_theOldSecretToken';
const NEW_TOKEN = 'hf_theNewSecretToken';

test.serial('offline serves what is cached; the rest fails at once with EHOSTUNREACH and says "offline"', async (t) => {
  for (const offline of [
    { args: ['--offline'] },
    { env: { HF_HUB_OFFLINE: 'yes' } },
  ] as Partial<MountedPoolOptions>[]) {
    const { files, tasks } = smallPool(2);
    const online = await MountedPool.start(t, { files, tasks });
    await online.run('cat', [online.path('v/t0.sif')]);
    await online.tmaxfs(['unmount', online.mountpoint]);
    await online.hub.close();
    const pool = await MountedPool.start(t, { files, tasks, cacheDirectory: online.cacheDirectory, ...offline });
    t.regex((await pool.run('sha256sum', [pool.path('v/t0.sif')])).stdout, new RegExp(`^${files[0]?.sha256}`));
    const startedAt = performance.now();
    const { exitCode, stderr } = await pool.run('cat', [pool.path('v/t1.sif')]);
    t.true(performance.now() - startedAt < 30_000);
    t.is(exitCode, 1);
    t.regex(stderr, /No route to host/);
    const [failure] = (await pool.status()).lastFailures;
    t.is(failure?.errno, 'EHOSTUNREACH');
    t.regex(failure?.message ?? '', /offline/);
    t.is(pool.hub.requests.all.length, 0);
    const reload = await pool.tmaxfs(['reload', pool.mountpoint]);
    t.is(reload.exitCode, 1);
    t.regex(reload.stderr, /^tmaxfs: offline/);
  }
});

test.serial('a proxy variable that leads nowhere is the first thing that is said', async (t) => {
  const { files, tasks } = smallPool(1);
  const proxy = `http://user:pass-word@127.0.0.1:${await freePort()}`;
  const pool = await MountedPool.prepare(t, { files, tasks, env: { HTTP_PROXY: proxy } });
  const { exitCode, stderr } = await pool.tryMount();
  t.is(exitCode, 1);
  t.regex(stderr, /^tmaxfs: HTTP_PROXY \(http:\/\/127\.0\.0\.1:\d+\) is set and leads nowhere/m);
  t.false((stderr + readFileSync(pool.logFile, 'utf8')).includes('pass-word'));
  t.is(pool.hub.requests.all.length, 0);
});

test.serial('a token file that is replaced while mounted is read anew', async (t) => {
  const { files, tasks } = smallPool(2);
  const folder = temporaryFolder(t);
  const file = join(folder, 'token');
  writeFileSync(file, `${OLD_TOKEN}\n`);
  const pool = await MountedPool.start(t, { files, tasks, readers: [OLD_TOKEN], env: { HF_TOKEN_PATH: file } });
  const readers = pool.hub.repository(POOL_NAME).readers;
  readers.delete(OLD_TOKEN);
  readers.add(NEW_TOKEN);
  const refused = await pool.run('cat', [pool.path('v/t0.sif')]);
  t.regex(refused.stderr, /Permission denied/);
  writeFileSync(join(folder, 'new'), NEW_TOKEN);
  renameSync(join(folder, 'new'), file);
  t.regex((await pool.run('sha256sum', [pool.path('v/t0.sif')])).stdout, new RegExp(`^${files[0]?.sha256}`));
  t.is(pool.hub.requests.all.at(-1)?.server, 'cdn');
  t.is(pool.hub.requests.filter(({ server }) => server === 'hub').at(-1)?.headers.authorization, `Bearer ${NEW_TOKEN}`);
});

for (const [where, settings] of [
  ['the environment', (_: string) => ({ HF_TOKEN: OLD_TOKEN })],
  ['the file below HF_HOME', (folder: string) => ({ HF_HOME: folder })],
] as const) {
  test.serial(`a token from ${where} is in no log, error, URL, status, attribute or command line`, async (t) => {
    const { files, tasks } = smallPool(2);
    const folder = temporaryFolder(t);
    writeFileSync(join(folder, 'token'), OLD_TOKEN);
    const options = { files, tasks, readers: [OLD_TOKEN], env: settings(folder), args: ['--log-level', 'trace'] };
    const pool = await MountedPool.start(t, options);
    await pool.run('cat', [pool.path('v/t0.sif')]);
    // A refusal that quotes the token, as a careless server might.
    pool.hub.fault({
      path: 'images/1.sif',
      fault: { kind: 'status', status: 403, headers: { 'x-error-message': `bad token ${OLD_TOKEN}` } },
      requests: 'every',
    });
    const refused = await pool.run('cat', [pool.path('v/t1.sif')]);
    t.is(refused.exitCode, 1);
    const status = await pool.status();
    t.is(status.lastFailures.length, 1);
    const told = [
      readFileSync(pool.logFile, 'utf8'),
      refused.stderr,
      JSON.stringify(status),
      (await pool.tmaxfs(['status', pool.mountpoint])).stdout,
      (await pool.run('getfattr', ['-d', pool.path('v/t1.sif'), pool.mountpoint])).stdout,
      ...pool.hub.requests.all.map(({ url }) => url),
      ...readdirSync('/proc')
        .filter((name) => /^\d+$/.test(name))
        .map(commandLine),
    ];
    t.true(
      told.some((text) => text.includes('mount\0') && text.includes(`\0${pool.mountpoint}\0`)),
      'the daemon’s command line is looked at',
    );
    for (const text of told) t.false(text.includes(OLD_TOKEN), text);
    const sent = pool.hub.requests.filter(({ headers }) => headers.authorization !== undefined);
    t.deepEqual([...new Set(sent.map(({ server }) => server))], ['hub']);
  });
}

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return '';
  }
}

test.serial('an idle daemon of a full pool holds less than 120 MB', async (t) => {
  const { poolImages, poolTaskMap } = await import('../support/pool-scale.js');
  const tasks = poolTaskMap();
  const pool = await MountedPool.start(t, { files: poolImages(tasks), tasks });
  const { pid } = await pool.status();
  const residentBytes = (): number => {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024;
  };
  t.log(`${residentBytes() / 1e6} MB resident after the start`);
  // What the start has left behind is cleared away within seconds.
  const endMs = performance.now() + 60_000;
  while (residentBytes() >= 120e6 && performance.now() < endMs)
    await new Promise((resolve) => setTimeout(resolve, 500));
  t.true(residentBytes() < 120e6, `${residentBytes()} bytes`);
});
