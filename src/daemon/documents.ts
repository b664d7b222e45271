/** What a daemon tells of itself, on its sockets and on its port. Each document is made anew for who asks. */

import type { BlobCache } from '../blobs/blob-cache.js';
import type { Scrubber } from '../blobs/scrubber.js';
import { TmaxError } from '../errors.js';
import type { PoolFileSystem } from '../filesystem/pool-file-system.js';
import type { MountHandle } from '../fuse/driver.js';
import { version } from '../version.js';
import { type Documents, TextDocument } from './control-server.js';
import { type CoverageDocument, countPool, countTasks, type KnownRefusal, listTasks } from './coverage.js';
import type { DiskSpace } from './disk-space.js';
import { Exposition } from './metrics/exposition.js';
import type { MetricParts } from './metrics/families.js';
import type { Measurements } from './metrics/measurements.js';
import { processUse } from './metrics/process-use.js';
import { statusPage } from './metrics/status-page.js';
import { AgedValue, summarize } from './metrics/summary.js';
import type { WebDocuments } from './metrics/web-server.js';
import type { Pools } from './pools.js';
import type { Settings } from './settings.js';
import type { SourceState } from './sources.js';
import { describeStatus, type Status } from './status.js';
import { isWithin } from './task-names.js';
import { VariantCounter } from './variant-counts.js';
import { nameCallers } from './waiting-callers.js';

export interface DaemonParts {
  readonly startedAt: Date;
  readonly settings: Settings;
  readonly pools: Pools;
  readonly blobs: BlobCache;
  /** Undefined where it is off. */
  readonly scrubber: Scrubber | undefined;
  readonly space: DiskSpace;
  readonly fileSystem: PoolFileSystem;
  /** Undefined until it is there. */
  readonly mount: () => MountHandle | undefined;
  readonly logFile: string | undefined;
  /** Undefined where nothing is shown on a port. */
  readonly metricsUrl: string | undefined;
  readonly measurements: Measurements;
  /** Where each source stands, first asked first. */
  readonly sources: () => readonly SourceState[];
}

/** Those of the sockets, and those of the port. Errors, of each: ENOTCONN nothing is mounted yet. */
export function daemonDocuments(parts: DaemonParts): {
  readonly documents: Documents;
  readonly webDocuments: WebDocuments;
} {
  const exposition = new Exposition(() => metricParts(parts));
  const counter = new VariantCounter();
  const coverage = new AgedValue(async () => {
    const onDisk = await parts.blobs.onDisk();
    return counter.count(parts.pools.catalog, onDisk, refusalsOf(parts));
  });
  return {
    documents: {
      '/status': () => statusOf(parts),
      '/coverage': (query) => coverageOf(parts, query.get('variant') ?? undefined, query.has('tasks')),
      '/metrics': async () => {
        const { contentType, text } = await exposition.scrape();
        return new TextDocument(contentType, text);
      },
    },
    webDocuments: {
      '/': statusPage,
      '/summary.json': async () => {
        const summary = summarize(await statusOf(parts), await coverage.get());
        return { contentType: 'application/json', text: JSON.stringify(summary) };
      },
      '/metrics': () => exposition.scrape(),
    },
  };
}

async function statusOf(parts: DaemonParts): Promise<Status> {
  const { startedAt, settings, pools, blobs, scrubber, space, fileSystem, logFile, metricsUrl } = parts;
  const [waiting, pinned] = await Promise.all([nameCallers(fileSystem.waitingOpens), blobs.pinned()]);
  return describeStatus({
    version,
    startedAt,
    settings,
    catalog: pools.catalog,
    pools: pools.reports(),
    follow: pools.follow(),
    blobs: blobs.statistics(),
    pinned,
    scrub: scrubber?.statistics(),
    diskAvailableBytes: space.availableBytes,
    reserveFreeBytes: space.limits.reserveFreeBytes,
    mount: mountOf(parts),
    waiting,
    measurements: parts.measurements,
    sources: parts.sources(),
    logFile,
    metricsUrl,
  });
}

/** Of all variants or one; with every task where `withTasks`. */
async function coverageOf(
  parts: DaemonParts,
  variant: string | undefined,
  withTasks: boolean,
): Promise<CoverageDocument> {
  const onDisk = await parts.blobs.onDisk();
  const { catalog } = parts.pools;
  const tasks = listTasks(catalog, onDisk, refusalsOf(parts), variant);
  const chosen = [...catalog.variants.keys()].filter((name) => isWithin(name, variant));
  const shown = parts.pools.reports().map(({ name, repository, commit }) => ({ name, repository, commit }));
  const pool = { ...catalog, pools: shown };
  const counted = variant === undefined ? countPool(pool, tasks) : countTasks(pool, tasks, chosen);
  return withTasks ? { ...counted, tasks } : counted;
}

function refusalsOf({ pools, blobs }: DaemonParts): ReadonlyMap<string, KnownRefusal> {
  const { catalog } = pools;
  return new Map(
    blobs.statistics().quarantine.map(({ sha256, cause, commit, reason }) => {
      return [sha256, { reason, isFinal: cause === 'image' && commit === catalog.blobs.get(sha256)?.commit }];
    }),
  );
}

function metricParts(parts: DaemonParts): MetricParts {
  const { settings, pools, blobs, scrubber, space, fileSystem, measurements } = parts;
  return {
    version,
    settings,
    pools: pools.reports(),
    counts: blobs.counts(),
    diskAvailableBytes: space.availableBytes,
    reserveFreeBytes: space.limits.reserveFreeBytes,
    scrub: scrubber?.statistics(),
    mount: mountOf(parts),
    waitingOpens: fileSystem.waitingOpens.length,
    sources: parts.sources(),
    measurements,
    process: processUse(),
  };
}

function mountOf({ mount }: DaemonParts): MountHandle {
  const mounted = mount();
  if (mounted !== undefined) return mounted;
  throw new TmaxError('ENOTCONN', 'nothing is mounted yet', { source: 'daemon' });
}
