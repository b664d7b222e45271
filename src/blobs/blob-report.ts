/** What the cache tells of itself, to `status`, to extended attributes and to the log. Types only. */

import type { BlobAddress } from '../sources/source.js';
import type { FetchPhase, FetchProgress } from './blob-fetch.js';
import type { CapacityUse } from './capacity.js';
import type { PublishStatistics } from './publisher.js';
import type { QuarantineRecord } from './quarantine.js';

/** What an open says of itself, for the log. */
export interface OpenLabel {
  readonly variant: string;
  readonly task: string;
}

export type BlobState =
  /** `unproven`: on disk, and to be proven again before it is served. */
  | {
      readonly state: 'absent' | 'unproven';
      /** Errno and words of the last fetch, where that failed. */
      readonly failure: string | undefined;
    }
  | {
      readonly state: 'ready';
      /** As SIF knows it: "amd64". */
      readonly architecture: string;
      /** Why it is not served all the same. */
      readonly refusal: string | undefined;
    }
  | {
      readonly state: 'queued' | 'fetching' | 'verifying' | 'publishing';
      readonly receivedBytes: number;
      readonly waiters: number;
    }
  | { readonly state: 'quarantined'; readonly record: QuarantineRecord };

export interface FetchInFlight extends FetchProgress {
  readonly address: BlobAddress;
  readonly label: OpenLabel;
  readonly startedAtMs: number;
  readonly waiters: number;
}

export interface FailedFetch {
  readonly at: string;
  /** Its sha256. */
  readonly blob: string;
  readonly path: string;
  readonly errno: string;
  readonly message: string;
}

/** What became of a blob that was to be evicted: gone, not there in the first place, or why it stays. */
export type Eviction = 'evicted' | 'absent' | 'pinned' | 'open' | 'fetching' | 'in use elsewhere';

/** Blobs that are never evicted. */
export interface PinnedUse {
  /** On disk. */
  readonly blobs: number;
  readonly bytes: number;
  /** Those that are kept once they are fetched. */
  readonly absentBlobs: number;
}

export interface BlobCacheStatistics {
  readonly use: CapacityUse;
  readonly hits: number;
  readonly misses: number;
  readonly fetched: number;
  readonly fetchedBytes: number;
  readonly failed: number;
  readonly evicted: number;
  readonly flights: readonly FetchInFlight[];
  readonly quarantine: readonly QuarantineRecord[];
  readonly lastFailures: readonly FailedFetch[];
  readonly publishing: readonly PublishStatistics[];
}

/** What can be told from memory alone, at no cost worth mentioning. */
export interface BlobCacheCounts {
  readonly use: CapacityUse;
  readonly evicted: number;
  readonly fetches: Readonly<Record<FetchPhase, number>>;
  readonly quarantined: Readonly<Record<QuarantineRecord['cause'], number>>;
  readonly publishing: readonly PublishStatistics[];
}
