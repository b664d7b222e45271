/** What a real daemon shows on its metrics port and its control socket. */

import { readFileSync } from 'node:fs';
import test, { type ExecutionContext } from 'ava';
import { FAMILIES } from '../../src/daemon/metrics/families.js';
import { version } from '../../src/version.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { packagePath } from '../support/paths.js';
import { getText, Scrape } from '../support/scrape.js';
import { smallPool } from '../support/small-pool.js';

async function scrape(pool: MountedPool): Promise<Scrape> {
  const { metricsUrl } = await pool.status();
  const { hostname, port } = new URL(metricsUrl ?? '');
  return new Scrape(await getText({ hostname, port, path: '/metrics' }));
}

function like(t: ExecutionContext, seen: Scrape, expected: Readonly<Record<string, number>>): void {
  for (const [series, value] of Object.entries(expected)) t.is(seen.value(series), value, series);
}

test.serial('a scrape counts opens, fetches, proofs, refusals and the kernel’s requests', async (t) => {
  const pool = await MountedPool.start(t, { ...smallPool(4), args: ['--metrics-port', '0'] });
  const before = await scrape(pool);
  like(t, before, { 'tmaxfs_open_wait_seconds_count{outcome="fetched",errno=""}': 0, tmaxfs_cache_used_bytes: 0 });
  pool.hub.fault({ server: 'cdn', path: 'images/0.sif', fault: { kind: 'status', status: 429 }, requests: [1] });
  for (const task of ['t0', 't0', 't1']) t.is((await pool.run('cat', [pool.path(`v/${task}.sif`)])).exitCode, 0);
  pool.hub.fault({ server: 'cdn', path: 'images/2.sif', fault: { kind: 'corrupt', atByte: 9 }, requests: 'every' });
  t.not((await pool.run('cat', [pool.path('v/t2.sif')])).exitCode, 0);
  pool.hub.fault({ server: 'cdn', path: 'images/3.sif', fault: { kind: 'stall' }, requests: 'every' });
  const waiting = pool.spawn(['cat', pool.path('v/t3.sif')]);
  await eventually('it waits', async () => (await pool.status()).opens.waiting.length === 1 || undefined);
  const seen = await scrape(pool);
  waiting.kill('SIGKILL');
  await waiting;
  like(t, seen, {
    'tmaxfs_open_wait_seconds_count{outcome="fetched",errno=""}': 2,
    'tmaxfs_open_wait_seconds_count{outcome="hit",errno=""}': 1,
    'tmaxfs_open_wait_seconds_count{outcome="failed",errno="EBADMSG"}': 1,
    'tmaxfs_open_wait_seconds_bucket{outcome="fetched",errno="",le="+Inf"}': 2,
    'tmaxfs_fetch_seconds_count{source="hub",outcome="fetched"}': 4,
    'tmaxfs_verify_seconds_count{level="structure",outcome="valid"}': 2,
    'tmaxfs_source_rate_limited_total{source="hub",requests="storage"}': 1,
    'tmaxfs_source_unanswered{source="hub",requests="storage"}': 0,
    'tmaxfs_quarantine_blobs{cause="transfer"}': 1,
    'tmaxfs_fetches{phase="fetching"}': 1,
    tmaxfs_opens_waiting: 1,
    tmaxfs_cache_idle_blobs: 2,
    tmaxfs_cache_limit_bytes: 200 * 2 ** 30,
    'tmaxfs_kernel_requests_total{opcode="OPEN"}': 5,
    [`tmaxfs_build_info{version="${version}",node="${process.versions.node}"}`]: 1,
  });
  t.true((seen.value('tmaxfs_fetch_retries_total{source="hub"}') ?? 0) >= 1);
  t.true((seen.value('tmaxfs_fetch_received_bytes_total{source="hub"}') ?? 0) > 800_000);
  t.is(
    (await pool.status()).commitDate,
    new Date(1000 * Number(seen.value('tmaxfs_catalog_commit_timestamp_seconds'))).toISOString(),
  );
  await eventually('the interrupted open is counted', async () => {
    return (
      (await scrape(pool)).value('tmaxfs_open_wait_seconds_count{outcome="interrupted",errno=""}') === 1 || undefined
    );
  });
});

test.serial(
  'the control socket shows the same metrics, without a port; a taken port is said at the start',
  async (t) => {
    const pool = await MountedPool.start(t, smallPool(1));
    t.is((await pool.status()).metricsUrl, null);
    const socketPath = (await pool.run('getfattr', ['--only-values', '-n', 'user.tmaxfs.control', pool.mountpoint]))
      .stdout;
    const { names } = new Scrape(await getText({ socketPath, path: '/metrics' }));
    const absent = FAMILIES.map(({ name }) => name).filter((name) => ![...names].some((one) => one.startsWith(name)));
    t.deepEqual(
      absent,
      [
        'tmaxfs_catalog_checked_timestamp_seconds',
        'tmaxfs_published_blobs_total',
        'tmaxfs_published_bytes_total',
        'tmaxfs_publish_queue_blobs',
        'tmaxfs_verify_seconds',
      ],
      'only what has not happened yet',
    );

    const port = new URL(pool.hub.endpoint).port;
    const taken = await MountedPool.prepare(t, { ...smallPool(1), args: ['--metrics-port', port] });
    const { exitCode, stderr } = await taken.tryMount();
    t.is(exitCode, 1);
    t.regex(stderr, new RegExp(`--metrics-port: port ${port} of 127\\.0\\.0\\.1 is taken`));
  },
);

/** What Prometheus adds to every series. */
const ADDED_LABELS = ['instance', 'job', 'le'];

interface Dashboard {
  readonly panels: readonly { readonly targets?: readonly { readonly expr: string }[] }[];
  readonly templating: { readonly list: readonly { readonly definition?: string }[] };
  readonly annotations: { readonly list: readonly { readonly expr: string }[] };
}

test.serial('every metric and every label that the Grafana dashboard asks for is in a scrape', async (t) => {
  const pool = await MountedPool.start(t, { ...smallPool(1), args: ['--metrics-port', '0'] });
  t.is((await pool.run('cat', [pool.path('v/t0.sif')])).exitCode, 0);
  t.is((await pool.tmaxfs(['reload', pool.mountpoint])).exitCode, 0);
  const seen = await scrape(pool);
  const { panels, templating, annotations } = JSON.parse(
    readFileSync(packagePath('docs', 'grafana-dashboard.json'), 'utf8'),
  ) as Dashboard;
  const queries = [
    ...panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
    ...templating.list.flatMap(({ definition = '' }) => definition),
    ...annotations.list.map(({ expr }) => expr),
  ];
  const asked = new Set(queries.flatMap((query) => query.match(/\b(?:tmaxfs|process)_[a-z_]+/g) ?? []));
  t.deepEqual(
    [...asked].filter((name) => !seen.names.has(name)),
    [],
  );
  t.true(asked.size > 25, 'it shows nearly all there is');
  for (const query of queries) {
    const labels = [
      ...Array.from(query.matchAll(/[{,]\s*([a-z_]+)=/g), ([, label = '']) => label),
      ...Array.from(query.matchAll(/\bby \(([^)]*)\)/g), ([, list = '']) => list.split(/,\s*/)).flat(),
    ];
    const [name = ''] = query.match(/\b(?:tmaxfs|process)_[a-z_]+/) ?? [];
    const known = [...ADDED_LABELS, ...seen.labelsOf(name)];
    t.deepEqual(
      labels.filter((label) => !known.includes(label)),
      [],
      query,
    );
  }
});
