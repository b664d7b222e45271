/** What a daemon says of itself: the document behind `tmaxfs status`, stable, in plain JSON. */

import type { BlobCacheStatistics, FetchInFlight, PinnedUse } from '../blobs/blob-report.js';
import type { PublishStatistics } from '../blobs/publisher.js';
import type { QuarantineRecord } from '../blobs/quarantine.js';
import type { ScrubStatistics } from '../blobs/scrubber.js';
import type { Catalog } from '../catalog/catalog.js';
import type { MountHandle } from '../fuse/driver.js';
import type { FollowReport } from './catalog-follower.js';
import type { Measurements } from './metrics/measurements.js';
import type { RecentValues } from './metrics/tallies.js';
import type { PoolReport } from './pools.js';
import type { Settings } from './settings.js';
import type { SourceState } from './sources.js';
import { taskNames } from './task-names.js';
import type { WaitingCaller } from './waiting-callers.js';

/** Of the latest opens that were answered with a file, milliseconds; null before the first. */
export interface Percentiles {
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
}

export interface Status {
  readonly version: string;
  readonly pid: number;
  readonly startedAt: string;
  readonly mountpoint: string;
  /** Of several pools those of the first, as are revision, commit and its date. */
  readonly repository: string;
  readonly revision: string;
  readonly commit: string;
  /** ISO 8601. */
  readonly commitDate: string;
  readonly offline: boolean;
  readonly driver: string;
  /** Whether reads go straight to the cache file, without this daemon. */
  readonly passthrough: boolean;
  readonly verifyLevel: string;
  /** Null where the log goes to standard error. */
  readonly logFile: string | null;
  /** Where metrics and the status page are; null without --metrics-port. */
  readonly metricsUrl: string | null;
  readonly catalog: {
    readonly variants: Readonly<Record<string, number>>;
    readonly blobs: number;
    readonly problems: number;
  };
  /** How the commit follows the revision; of several pools, of the first that could not be renewed, else of the first. */
  readonly follow: FollowReport;
  /** Each pool; the name is "" for one that is the whole mount. */
  readonly pools: readonly PoolReport[];
  readonly cache: {
    readonly directory: string;
    /** Its group may fill it, read from it and evict. */
    readonly isShared: boolean;
    readonly limitBytes: number;
    readonly usedBytes: number;
    readonly reservedBytes: number;
    /** On the disk of the directory, as of some seconds ago, and what of that the cache leaves alone. */
    readonly diskAvailableBytes: number;
    readonly reserveFreeBytes: number;
    readonly idleBlobs: number;
    readonly leasedBlobs: number;
    /** Never evicted. */
    readonly pinned: PinnedUse;
  };
  readonly opens: {
    /** Answered at once, from the cache. */
    readonly hits: number;
    /** That had to wait for a fetch, whatever came of it. */
    readonly misses: number;
    readonly waiting: readonly WaitingCaller[];
    /** Of the latest 1,024 of each: all, those answered at once, and those that waited for a fetch. */
    readonly latency: { readonly all: Percentiles; readonly hits: Percentiles; readonly waited: Percentiles };
  };
  readonly fetches: {
    readonly done: number;
    readonly failed: number;
    readonly bytes: number;
    readonly evicted: number;
    /** Requests that failed and were followed by another. */
    readonly retries: number;
    readonly running: readonly {
      readonly name: string;
      readonly blob: string;
      readonly phase: string;
      readonly receivedBytes: number;
      readonly sizeBytes: number;
      readonly seconds: number;
      /** Over the last ten seconds; null where nothing is being transferred, or it has only begun. */
      readonly bytesPerSecond: number | null;
      /** Until all bytes are there, at that rate. */
      readonly etaSeconds: number | null;
      readonly waiters: number;
      readonly source: string | null;
      /** Requests that failed and were followed by another; what was wrong with the last. */
      readonly faults: number;
      readonly lastFault: string | null;
    }[];
  };
  /** Where images are fetched from, first asked first ("hub", "dir:/path", ...), how each has answered, and where its requests stand. */
  readonly sources: readonly {
    readonly name: string;
    readonly health: {
      /** Passed over but for a fetch now and then, since its last fetches came to nothing. */
      readonly isLeftAlone: boolean;
      /** Until the next such fetch. */
      readonly leftAloneSeconds: number;
      /** Fetches since its last good one that failed, or brought something else than the image. */
      readonly failuresInARow: number;
      /** Since the daemon started: fetches that it brought the image to, and those that it did not have it for. */
      readonly brought: number;
      readonly refused: number;
      /** And those that it brought something else to. */
      readonly wrongAnswers: number;
      readonly lastFailure: { readonly at: string; readonly message: string } | null;
    };
    readonly requests: readonly {
      readonly kind: string;
      /** Answers 429. */
      readonly tooManyRequests: number;
      /** How much longer none are sent, because the source asked for that. */
      readonly pausedSeconds: number;
      /** The last ones were not answered: only one a second is sent until one is. */
      readonly isUnanswered: boolean;
    }[];
  }[];
  /** Where what was fetched is written to, for other nodes ("dir:/path"), and what has become of it since this daemon started. */
  readonly publishing: readonly (Omit<PublishStatistics, 'failure'> & {
    /** The last failure, until one succeeds. */
    readonly failure: NonNullable<PublishStatistics['failure']> | null;
  })[];
  /** The search for bit rot, since this daemon started; null where it is off. */
  readonly scrub: {
    readonly periodSeconds: number;
    readonly checkedBlobs: number;
    readonly damagedBlobs: number;
  } | null;
  readonly quarantine: readonly {
    /** Its sha256. */
    readonly blob: string;
    readonly path: string;
    /** The tasks that are shown by it, as "variant/task". */
    readonly names: readonly string[];
    readonly sizeBytes: number;
    readonly cause: QuarantineRecord['cause'];
    /** How far its proof came. */
    readonly level: string;
    readonly code: string;
    readonly reason: string;
    readonly source: string;
    readonly refusedAt: string;
  }[];
  readonly lastFailures: readonly {
    readonly at: string;
    readonly blob: string;
    /** As in `quarantine`. */
    readonly names: readonly string[];
    readonly path: string;
    readonly errno: string;
    readonly message: string;
  }[];
  readonly kernel: ReturnType<MountHandle['statistics']>;
}

export interface StatusParts {
  readonly version: string;
  readonly startedAt: Date;
  readonly settings: Settings;
  readonly catalog: Catalog;
  readonly follow: FollowReport;
  readonly pools: readonly PoolReport[];
  readonly blobs: BlobCacheStatistics;
  readonly pinned: PinnedUse;
  /** Undefined where it is off. */
  readonly scrub: ScrubStatistics | undefined;
  readonly diskAvailableBytes: number;
  readonly reserveFreeBytes: number;
  readonly mount: Pick<MountHandle, 'driver' | 'passthrough' | 'statistics'>;
  readonly waiting: readonly WaitingCaller[];
  readonly measurements: Pick<Measurements, 'latencies' | 'rates' | 'retries'>;
  readonly sources: readonly SourceState[];
  readonly logFile: string | undefined;
  readonly metricsUrl: string | undefined;
}

export function describeStatus(parts: StatusParts): Status {
  const { version, startedAt, settings, catalog, follow, pools, blobs, scrub, mount, measurements } = parts;
  const namesOf = taskNames(
    catalog,
    new Set([...blobs.quarantine.map(({ sha256 }) => sha256), ...blobs.lastFailures.map(({ blob }) => blob)]),
  );
  const { limitBytes, usedBytes, reservedBytes, idleBlobs, leasedBlobs } = blobs.use;
  return {
    version,
    pid: process.pid,
    startedAt: startedAt.toISOString(),
    mountpoint: settings.mountpoint,
    repository: catalog.repository,
    revision: pools[0]?.revision ?? '',
    commit: catalog.commit,
    commitDate: catalog.date.toISOString(),
    offline: settings.offline,
    driver: mount.driver,
    passthrough: mount.passthrough,
    verifyLevel: settings.verifyLevel,
    logFile: parts.logFile ?? null,
    metricsUrl: parts.metricsUrl ?? null,
    catalog: {
      variants: Object.fromEntries([...catalog.variants.values()].map(({ name, tasks }) => [name, tasks.size])),
      blobs: catalog.blobs.size,
      problems: catalog.problemCount,
    },
    follow,
    pools,
    cache: {
      directory: settings.cacheDirectory,
      isShared: settings.sharedCache,
      limitBytes,
      usedBytes,
      reservedBytes,
      diskAvailableBytes: parts.diskAvailableBytes,
      reserveFreeBytes: parts.reserveFreeBytes,
      idleBlobs,
      leasedBlobs,
      pinned: parts.pinned,
    },
    opens: {
      hits: blobs.hits,
      misses: blobs.misses,
      waiting: parts.waiting,
      latency: {
        all: percentilesOf(measurements.latencies.all),
        hits: percentilesOf(measurements.latencies.hits),
        waited: percentilesOf(measurements.latencies.waited),
      },
    },
    fetches: {
      done: blobs.fetched,
      failed: blobs.failed,
      bytes: blobs.fetchedBytes,
      evicted: blobs.evicted,
      retries: measurements.retries.total,
      running: blobs.flights.map((flight) => ({
        name: `${flight.label.variant}/${flight.label.task}`,
        blob: flight.address.sha256,
        phase: flight.phase,
        receivedBytes: flight.receivedBytes,
        sizeBytes: flight.address.sizeBytes,
        seconds: Math.round((Date.now() - flight.startedAtMs) / 1000),
        ...speedOf(flight, measurements.rates),
        waiters: flight.waiters,
        source: flight.source ?? null,
        faults: flight.faults,
        lastFault: flight.lastFault ?? null,
      })),
    },
    sources: parts.sources.map(({ name, requests, health }) => ({
      name,
      health: {
        isLeftAlone: health.isLeftAlone,
        leftAloneSeconds: Math.ceil(health.leftAloneMs / 1000),
        failuresInARow: health.failuresInARow,
        brought: health.brought,
        refused: health.refused,
        wrongAnswers: health.wrongAnswers,
        lastFailure:
          health.lastFailure === undefined
            ? null
            : { at: health.lastFailure.at.toISOString(), message: health.lastFailure.message },
      },
      requests: requests.map(({ kind, tooManyRequests, pausedMs, isUnanswered }) => {
        return { kind, tooManyRequests, pausedSeconds: Math.ceil(pausedMs / 1000), isUnanswered };
      }),
    })),
    publishing: blobs.publishing.map((line) => ({ ...line, failure: line.failure ?? null })),
    scrub: scrub === undefined ? null : { periodSeconds: (settings.scrubPeriodMs ?? 0) / 1000, ...scrub },
    quarantine: blobs.quarantine.map((record) => ({
      blob: record.sha256,
      path: record.path,
      names: namesOf(record.sha256),
      sizeBytes: record.sizeBytes,
      cause: record.cause,
      level: record.level,
      code: record.code,
      reason: record.reason,
      source: record.source,
      refusedAt: record.refusedAt,
    })),
    lastFailures: blobs.lastFailures.map((failure) => ({ ...failure, names: namesOf(failure.blob) })),
    kernel: mount.statistics(),
  };
}

function speedOf({ address, receivedBytes }: FetchInFlight, rates: Measurements['rates']) {
  const bytesPerSecond = rates.bytesPerSecond(address.sha256) ?? null;
  const missingBytes = Math.max(0, address.sizeBytes - receivedBytes);
  return { bytesPerSecond, etaSeconds: bytesPerSecond ? Math.ceil(missingBytes / bytesPerSecond) : null };
}

function percentilesOf(values: RecentValues): Percentiles {
  const [p50Ms = null, p99Ms = null] = values.percentiles(0.5, 0.99).map(roundMs);
  return { p50Ms, p99Ms };
}

/** To microseconds. */
function roundMs(milliseconds: number | null): number | null {
  return milliseconds === null ? null : Math.round(milliseconds * 1000) / 1000;
}
