/**
 * An engine before the Hub that fails in every way there is: each open ends in the right bytes all the same, soon, and an engine that goes
 * on failing is left alone. The engine is a second fake Hub, whose storage can do all that servers do wrong; and a real nginx.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { FakeHub } from '../../src/demo/fake-hub.js';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool, POOL_NAME } from '../support/mounted-pool.js';
import { freePort, startNginx } from '../support/nginx.js';
import { getText, Scrape } from '../support/scrape.js';
import { contentOf, smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const MIB = 2 ** 20;
/** Deadlines that a test need not wait long for. */
const IMPATIENT = ['--first-byte-timeout', '1', '--idle-timeout', '1'];

const FAULTS: readonly Fault[] = [
  { kind: 'status', status: 500 },
  { kind: 'status', status: 503, headers: { 'retry-after': '3600' } },
  { kind: 'status', status: 429, headers: { 'retry-after': '3600' } },
  { kind: 'status', status: 400 },
  { kind: 'status', status: 416 },
  { kind: 'reset' },
  { kind: 'reset', afterBytes: 50_000 },
  { kind: 'cut', afterBytes: 50_000 },
  { kind: 'stall' },
  { kind: 'stall', afterBytes: 0 },
  { kind: 'truncate', toBytes: 50_000 },
  { kind: 'excess', bytes: 100 },
  { kind: 'chunked', afterBytes: 50_000 },
  { kind: 'corrupt', atByte: 60_000 },
  { kind: 'wrong-range', shiftBytes: 4096 },
  { kind: 'gzip' },
  { kind: 'html' },
  { kind: 'no-content' },
  { kind: 'redirect-loop' },
];

async function isRight(t: ExecutionContext, pool: MountedPool, index: number): Promise<void> {
  const { stdout, stderr } = await pool.run('sha256sum', [pool.path(`v/t${index}.sif`)]);
  t.true(stdout.startsWith(pool.options.files[index]?.sha256 ?? '?'), stderr);
}

const bytesFrom = (pool: MountedPool) =>
  pool.hub.requests.filter(({ server }) => server === 'cdn').map(({ file }) => file);

async function scrape(pool: MountedPool): Promise<Scrape> {
  const control = await pool.run('getfattr', ['--only-values', '-n', 'user.tmaxfs.control', pool.mountpoint]);
  return new Scrape(await getText({ socketPath: control.stdout, path: '/metrics' }));
}

for (const fault of FAULTS) {
  test.serial(`the Hub stands in for an engine that answers so: ${JSON.stringify(fault)}`, async (t) => {
    const { files, tasks } = smallPool(5);
    const engine = await FakeHub.start({ repositories: [repositoryOf(POOL_NAME, files)] });
    t.teardown(() => engine.close());
    const source = `${engine.endpoint}/datasets/{repo}/resolve/main/{path}`;
    const args = [...IMPATIENT, '--source', source, '--source', 'hub'];
    const pool = await MountedPool.start(t, { files, tasks, args });
    await isRight(t, pool, 0);
    t.deepEqual(bytesFrom(pool), [], 'as long as the engine is well, it gives everything');

    const installed = engine.fault({ fault, requests: 'every' });
    for (const index of [1, 2, 3]) await isRight(t, pool, index);
    t.deepEqual([...new Set(bytesFrom(pool))], ['images/1.sif', 'images/2.sif', 'images/3.sif']);
    t.true(installed.hits >= 3);
    const [{ health } = { health: undefined }] = (await pool.status()).sources;
    t.like(health, { isLeftAlone: true, failuresInARow: 3 });
    t.regex(
      (await pool.tmaxfs(['status', pool.mountpoint])).stdout,
      /LEFT ALONE for \d+ s more, 3 fetches failed in a row/,
    );
    const seen = await scrape(pool);
    t.is(seen.value(`tmaxfs_source_left_alone{source="${source}"}`), 1);
    t.is(seen.value('tmaxfs_source_left_alone{source="hub"}'), 0);
    t.is(seen.value(`tmaxfs_source_wrong_answers_total{source="${source}"}`), health?.wrongAnswers);

    const askedSoFar = engine.requests.all.length;
    await isRight(t, pool, 4);
    // Where the commands took so long that its time had come, this fetch was the one to try it.
    const hasTried = ((await pool.status()).sources[0]?.health.failuresInARow ?? 0) > 3;
    t.is(engine.requests.all.length > askedSoFar, hasTried, 'one that is left alone is not asked');
  });
}

test.serial('an engine that is well again is noticed, by one fetch', async (t) => {
  const { files, tasks } = smallPool(4);
  const engine = await FakeHub.start({ repositories: [repositoryOf(POOL_NAME, files)] });
  t.teardown(() => engine.close());
  const source = `${engine.endpoint}/datasets/{repo}/resolve/main/{path}`;
  const pool = await MountedPool.start(t, { files, tasks, args: ['--source', source, '--source', 'hub'] });
  const installed = engine.fault({ fault: { kind: 'reset' }, requests: 'every' });
  for (const index of [0, 1, 2]) await isRight(t, pool, index);
  installed.remove();
  const health = async () => (await pool.status()).sources[0]?.health;
  t.true((await health())?.isLeftAlone);
  await eventually('it may be tried', async () => (await health())?.leftAloneSeconds === 0 || undefined);
  const index = 3;
  await isRight(t, pool, index);
  t.like(await health(), { isLeftAlone: false, failuresInARow: 0 });
  t.is((await scrape(pool)).value(`tmaxfs_source_left_alone{source="${source}"}`), 0);
  t.false(bytesFrom(pool).includes(`images/${index}.sif`));
  t.truthy(await pool.logged(({ msg }) => msg === `${source} answers again`));
});

for (const [what, signal] of [
  ['killed', 'SIGKILL'],
  ['stopped', 'SIGSTOP'],
] as const) {
  test.serial(
    `an nginx that is ${what} in the middle of an image: the Hub brings what is missing, and only that`,
    async (t) => {
      const { files, tasks } = smallPool(3, 30 * MIB);
      const folder = temporaryFolder(t);
      for (const file of files) {
        const path = join(folder, 'files', file.path);
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, contentOf(file));
      }
      const port = await freePort();
      const nginx = await startNginx(
        folder,
        port,
        `server { listen 127.0.0.1:${port}; root ${folder}/files; limit_rate_after 2m; limit_rate 256k; }`,
      );
      t.teardown(() => nginx.kill());
      // Not so short that its slowness is taken for silence.
      const args = [
        '--first-byte-timeout',
        '2',
        '--idle-timeout',
        '8',
        '--source',
        `http://127.0.0.1:${port}/{path}`,
        '--source',
        'hub',
      ];
      const pool = await MountedPool.start(t, { files, tasks, args });
      const reading = isRight(t, pool, 0);
      for (;;) {
        const { running } = (await pool.status()).fetches;
        if ((running[0]?.receivedBytes ?? 0) >= 8 * MIB) break;
      }
      nginx.signal(signal);
      await reading;
      const sent = pool.hub.requests.filter(({ server }) => server === 'cdn');
      t.true(sent.every(({ headers }) => Number(/^bytes=(\d+)-/.exec(String(headers.range))?.[1]) >= 2 * MIB));
      t.true(sent.length > 0);
      await isRight(t, pool, 1);
    },
  );
}
