/**
 * Every metric that a scrape shows: its name by the conventions of Prometheus (base units, `_total` for what only grows),
 * its words, and where its values come from. docs/METRICS.md is this list for people, and a test compares them.
 */

import type { BlobCacheCounts } from '../../blobs/blob-report.js';
import type { ScrubStatistics } from '../../blobs/scrubber.js';
import type { MountHandle } from '../../fuse/driver.js';
import type { RequestState } from '../../sources/rate-governor.js';
import type { PoolReport } from '../pools.js';
import type { Settings } from '../settings.js';
import type { SourceState } from '../sources.js';
import type { Measurements } from './measurements.js';
import type { ProcessUse } from './process-use.js';
import type { Counted, CountTally, HistogramTally, Labels } from './tallies.js';

/** What is looked at in one scrape: all of it from memory. */
export interface MetricParts {
  readonly version: string;
  readonly settings: Pick<Settings, 'verifyLevel'>;
  readonly pools: readonly PoolReport[];
  readonly counts: BlobCacheCounts;
  readonly diskAvailableBytes: number;
  readonly reserveFreeBytes: number;
  /** Undefined where it is off. */
  readonly scrub: ScrubStatistics | undefined;
  readonly mount: Pick<MountHandle, 'driver' | 'passthrough' | 'statistics'>;
  readonly waitingOpens: number;
  readonly sources: readonly SourceState[];
  readonly measurements: Measurements;
  readonly process: ProcessUse;
}

export type Family = { readonly name: string; readonly help: string } & (
  | { readonly type: 'gauge' | 'counter'; readonly values: (parts: MetricParts) => Iterable<Counted> }
  | { readonly type: 'histogram'; readonly tally: (parts: MetricParts) => HistogramTally }
);

type Value = (parts: MetricParts) => number;
type Values = (parts: MetricParts) => Iterable<Counted>;

export const FAMILIES: readonly Family[] = [
  info('tmaxfs_build_info', 'Always 1; the version of tmaxfs and of Node.', ({ version }) => {
    return { version, node: process.versions.node };
  }),
  gauges('tmaxfs_mount_info', 'Always 1; what is mounted, and how.', ({ pools, settings, mount }) =>
    pools.map((pool) => ({
      labels: {
        ...poolLabel(pool),
        repository: pool.repository,
        revision: pool.revision,
        commit: pool.commit,
        driver: mount.driver,
        passthrough: String(mount.passthrough),
        verify_level: settings.verifyLevel,
      },
      value: 1,
    })),
  ),

  gauges('tmaxfs_catalog_commit_timestamp_seconds', 'Date of the commit that is shown.', (parts) =>
    ofPools(parts, ({ commitDate }) => Date.parse(commitDate) / 1000),
  ),
  gauges(
    'tmaxfs_catalog_checked_timestamp_seconds',
    'When the revision was last resolved anew; absent before that.',
    (parts) =>
      ofPools(parts, ({ follow: { checkedAt } }) => (checkedAt === null ? undefined : Date.parse(checkedAt) / 1000)),
  ),
  gauges('tmaxfs_catalog_failed', '1 where the last look for a newer commit has led to nothing, else 0.', (parts) =>
    ofPools(parts, ({ follow }) => Number(follow.failure !== null)),
  ),
  gauges('tmaxfs_catalog_blobs', 'Distinct images of the commit that is shown.', (parts) =>
    ofPools(parts, ({ blobs }) => blobs),
  ),
  gauges('tmaxfs_catalog_problems', 'Tasks and files that were left out of it.', (parts) =>
    ofPools(parts, ({ problems }) => problems),
  ),

  histogram(
    'tmaxfs_open_wait_seconds',
    'How long opens of images took, by outcome (hit, fetched, interrupted, failed) and, where they failed, by errno.',
    ({ opens }) => opens,
  ),
  gauge('tmaxfs_opens_waiting', 'Callers that wait in an open now.', ({ waitingOpens }) => waitingOpens),

  gauges('tmaxfs_fetches', 'Images that are on their way now, by phase.', ({ counts }) =>
    labelled('phase', counts.fetches),
  ),
  histogram(
    'tmaxfs_fetch_seconds',
    'How long the transfers of images took, by source and outcome (fetched, absent, interrupted, failed).',
    ({ fetchSeconds }) => fetchSeconds,
  ),
  histogram('tmaxfs_fetch_bytes', 'Bytes that transfers of images brought, by source.', ({ fetchBytes }) => fetchBytes),
  counters('tmaxfs_fetch_received_bytes_total', 'Bytes of images that have come, by source.', ({ measurements }) =>
    seriesOf(measurements.receivedBytes),
  ),
  counters(
    'tmaxfs_fetch_retries_total',
    'Requests for images that failed and were followed by another, by source.',
    ({ measurements }) => seriesOf(measurements.retries),
  ),
  counters(
    'tmaxfs_source_rate_limited_total',
    'Answers "too many requests" (429), by source and kind of request.',
    (parts) => requestStates(parts, ({ tooManyRequests }) => tooManyRequests),
  ),
  gauges(
    'tmaxfs_source_pause_seconds',
    'How much longer no request is sent, because the source asked for that.',
    (parts) => requestStates(parts, ({ pausedMs }) => pausedMs / 1000),
  ),
  gauges(
    'tmaxfs_source_unanswered',
    '1 where the last requests were not answered and only one at a time is sent, else 0.',
    (parts) => requestStates(parts, ({ isUnanswered }) => Number(isUnanswered)),
  ),
  gauges(
    'tmaxfs_source_left_alone',
    '1 where the source is passed over but for a fetch now and then, since its last ones came to nothing, else 0.',
    (parts) => healthStates(parts, ({ isLeftAlone }) => Number(isLeftAlone)),
  ),
  counters(
    'tmaxfs_source_wrong_answers_total',
    'Fetches that brought something else than the image, by source.',
    (parts) => healthStates(parts, ({ wrongAnswers }) => wrongAnswers),
  ),

  counters(
    'tmaxfs_published_blobs_total',
    'Images that were to be published for other nodes, by destination and outcome (published, present, failed, skipped).',
    ({ counts }) =>
      counts.publishing.flatMap(({ name: destination, published, present, failed, skipped }) =>
        Object.entries({ published, present, failed, skipped }).map(([outcome, value]) => {
          return { labels: { destination, outcome }, value };
        }),
      ),
  ),
  counters('tmaxfs_published_bytes_total', 'Bytes of images that were published, by destination.', ({ counts }) =>
    counts.publishing.map(({ name: destination, publishedBytes }) => {
      return { labels: { destination }, value: publishedBytes };
    }),
  ),
  gauges('tmaxfs_publish_queue_blobs', 'Images that wait to be published, by destination.', ({ counts }) =>
    counts.publishing.map(({ name: destination, queued }) => ({ labels: { destination }, value: queued })),
  ),

  histogram(
    'tmaxfs_verify_seconds',
    'How long proofs of images took, by level and outcome (valid, invalid, unsupported, interrupted, failed).',
    ({ verifications }) => verifications,
  ),
  gauges('tmaxfs_quarantine_blobs', 'Images that are refused, by whose fault that is.', ({ counts }) =>
    labelled('cause', counts.quarantined),
  ),

  gauge('tmaxfs_cache_limit_bytes', 'Most that the cache may hold.', ({ counts }) => counts.use.limitBytes),
  gauge(
    'tmaxfs_cache_used_bytes',
    'What it holds, with partial files, and all that is reserved for running fetches.',
    ({ counts }) => counts.use.usedBytes,
  ),
  gauge('tmaxfs_cache_reserved_bytes', 'Reserved for running fetches.', ({ counts }) => counts.use.reservedBytes),
  gauge('tmaxfs_cache_idle_blobs', 'Images on disk that nobody holds open.', ({ counts }) => counts.use.idleBlobs),
  gauge('tmaxfs_cache_leased_blobs', 'Images that are held open.', ({ counts }) => counts.use.leasedBlobs),
  counter('tmaxfs_cache_evictions_total', 'Images evicted to make room.', ({ counts }) => counts.evicted),
  gauge('tmaxfs_cache_disk_available_bytes', 'Free on the disk of the cache, as of some seconds ago.', (parts) => {
    return parts.diskAvailableBytes;
  }),
  gauge('tmaxfs_cache_reserve_free_bytes', 'What the cache leaves free on its disk.', (parts) => {
    return parts.reserveFreeBytes;
  }),
  counters('tmaxfs_scrub_blobs_total', 'Idle images that were hashed again, by result.', ({ scrub }) =>
    scrub === undefined
      ? []
      : labelled('result', { sound: scrub.checkedBlobs - scrub.damagedBlobs, damaged: scrub.damagedBlobs }),
  ),

  counters('tmaxfs_kernel_requests_total', 'Requests of the kernel, by opcode.', ({ mount }) =>
    labelled('opcode', mount.statistics().requests),
  ),
  gauge('tmaxfs_kernel_open_handles', 'Files that are open.', ({ mount }) => mount.statistics().openHandles),

  gauge('process_resident_memory_bytes', 'Resident memory size in bytes.', used('residentBytes')),
  counter('process_cpu_seconds_total', 'Total user and system CPU time spent in seconds.', used('cpuSeconds')),
  gauge('process_open_fds', 'Number of open file descriptors.', used('openDescriptors')),
  gauge('process_start_time_seconds', 'Start time of the process since unix epoch in seconds.', used('startedAt')),
];

function used(key: keyof ProcessUse): Value {
  return ({ process: use }) => use[key];
}

function info(name: string, help: string, labels: (parts: MetricParts) => Labels): Family {
  return gauges(name, help, (parts) => [{ labels: labels(parts), value: 1 }]);
}

function gauge(name: string, help: string, value: Value): Family {
  return gauges(name, help, (parts) => one(value(parts)));
}

function counter(name: string, help: string, value: Value): Family {
  return counters(name, help, (parts) => one(value(parts)));
}

function gauges(name: string, help: string, values: Values): Family {
  return { name, help, type: 'gauge', values };
}

function counters(name: string, help: string, values: Values): Family {
  return { name, help, type: 'counter', values };
}

function histogram(name: string, help: string, tally: (measurements: Measurements) => HistogramTally): Family {
  return { name, help, type: 'histogram', tally: ({ measurements }) => tally(measurements) };
}

function one(value: number): readonly Counted[] {
  return [{ labels: {}, value }];
}

/** Of several pools each has its name. */
function poolLabel({ name }: PoolReport): Labels {
  return name === '' ? {} : { pool: name };
}

function ofPools({ pools }: MetricParts, value: (pool: PoolReport) => number | undefined): readonly Counted[] {
  return pools.flatMap((pool) => {
    const counted = value(pool);
    return counted === undefined ? [] : [{ labels: poolLabel(pool), value: counted }];
  });
}

function labelled(label: string, values: Readonly<Record<string, number>>): readonly Counted[] {
  return Object.entries(values).map(([name, value]) => ({ labels: { [label]: name }, value }));
}

function seriesOf(tally: CountTally): Iterable<Counted> {
  return tally.series;
}

function* requestStates({ sources }: MetricParts, value: (state: RequestState) => number): Generator<Counted> {
  for (const { name: source, requests } of sources) {
    for (const state of requests) yield { labels: { source, requests: state.kind }, value: value(state) };
  }
}

function healthStates({ sources }: MetricParts, value: (health: SourceState['health']) => number): readonly Counted[] {
  return sources.map(({ name: source, health }) => ({ labels: { source }, value: value(health) }));
}
