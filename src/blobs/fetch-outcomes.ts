/** How fetches have ended: counted, told to the log, and the failures remembered for `status` and extended attributes. */

import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { messageOf, type TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { FetchResult } from './blob-fetch.js';
import type { FailedFetch, OpenLabel } from './blob-report.js';

/** The fetch that has ended. */
export interface EndedFetch {
  readonly address: BlobAddress;
  readonly label: OpenLabel;
  readonly startedAtMs: number;
}

/** Failures that `status` shows. */
const MAX_LAST_FAILURES = 20;
/** Blobs whose last failure is remembered, for their extended attributes. */
const MAX_FAILURES = 4096;

export class FetchOutcomes {
  readonly #log: Logger;
  readonly #lastFailures: FailedFetch[] = [];
  /** Why the last fetch of a blob failed, by sha256, until one succeeds. */
  readonly #failures = new LRUCache<string, string>({ max: MAX_FAILURES });
  #counts = { fetched: 0, fetchedBytes: 0, failed: 0 };

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Errno and words of the last fetch, where that failed. */
  failure(sha256: string): string | undefined {
    return this.#failures.get(sha256);
  }

  statistics() {
    return { ...this.#counts, lastFailures: this.#lastFailures as readonly FailedFetch[] };
  }

  succeeded({ address, label, startedAtMs }: EndedFetch, { source, downloadedBytes }: FetchResult): void {
    const { sha256, sizeBytes } = address;
    this.#failures.delete(sha256);
    if (source === 'cache') return;
    this.#counts.fetched += 1;
    this.#counts.fetchedBytes += downloadedBytes;
    this.#log.info(
      { ...label, blob: sha256, bytes: sizeBytes, seconds: secondsSince(startedAtMs), source },
      `fetched ${label.variant}/${label.task}`,
    );
  }

  failed({ address, label, startedAtMs }: EndedFetch, error: TmaxError): void {
    const { sha256, path } = address;
    const { errno, source, level } = error;
    const reason = messageOf(error);
    // A fetch that was called off has not failed.
    if (errno !== 'EINTR') {
      this.#counts.failed += 1;
      this.#failures.set(sha256, `${errno}: ${reason}`);
      this.#lastFailures.push({ at: new Date().toISOString(), blob: sha256, path, errno, message: reason });
      if (this.#lastFailures.length > MAX_LAST_FAILURES) this.#lastFailures.shift();
    }
    this.#log[level](
      { ...label, blob: sha256, errno, source, seconds: secondsSince(startedAtMs), reason },
      `fetch of ${label.variant}/${label.task} failed: ${errno}`,
    );
  }
}

function secondsSince(startedAtMs: number): number {
  return Math.round(Date.now() - startedAtMs) / 1000;
}
