/** The Hub as a source of blobs; the work is done in the fetch threads. */

import { availableParallelism } from 'node:os';
import { checkConnectionSettings } from './dispatchers.js';
import { FetchThreads } from './fetch-threads.js';
import { type HubSettings, parseEndpoint } from './hub-settings.js';
import {
  CONNECTIONS_PER_BLOB,
  MAX_CONNECTIONS_IN_ALL,
  MAX_FETCH_THREADS,
  RACE_AFTER_IDLE_SHARE,
  type RetrySettings,
  TRANSFER_RETRY,
} from './limits.js';
import { RateGovernor } from './rate-governor.js';
import type { BlobAddress, Download, DownloadOptions, Source } from './source.js';

export interface HubSourceSettings extends HubSettings {
  /** Connections that one large blob may take; default `CONNECTIONS_PER_BLOB`. */
  readonly connectionsPerBlob?: number;
  /** Default: one per core, at most `MAX_FETCH_THREADS`. */
  readonly threads?: number;
  /** How long threads without a transfer are kept; default `IDLE_THREADS_MS`. */
  readonly idleThreadsMs?: number;
  readonly retry?: RetrySettings;
}

export class HubSource implements Source {
  readonly name = 'hub';
  readonly #settings: HubSourceSettings;
  readonly #threads: FetchThreads;
  #transfers = 0;

  /** No thread is started before the first download. Errors: EINVAL endpoint, proxy or certificate file. */
  constructor(settings: HubSourceSettings, governor = new RateGovernor()) {
    const { endpoint, userAgent, proxy, caFile, retry = TRANSFER_RETRY } = settings;
    const { connectTimeoutMs, headersTimeoutMs, idleTimeoutMs, minBytesPerSecond, speedWindowMs } = settings;
    const { threads = Math.min(MAX_FETCH_THREADS, availableParallelism()), idleThreadsMs: idleMs } = settings;
    parseEndpoint(endpoint);
    checkConnectionSettings(settings);
    this.#settings = settings;
    const deadlines = { connectTimeoutMs, headersTimeoutMs, idleTimeoutMs, minBytesPerSecond, speedWindowMs };
    const http = { ...deadlines, userAgent, proxy, caFile };
    const raceAfterMs = idleTimeoutMs * RACE_AFTER_IDLE_SHARE;
    const data = { endpoint, http, retry, raceAfterMs, governorMemory: governor.memory };
    const onDeath = (error: unknown) => settings.log.error({ err: error }, 'a fetch thread died and is replaced');
    this.#threads = new FetchThreads(data, { threads, idleMs, onDeath });
  }

  /** Threads there are now: none while nothing is fetched. */
  get threadCount(): number {
    return this.#threads.threadCount;
  }

  async download(blob: BlobAddress, partialPath: string, options: DownloadOptions): Promise<Download> {
    const { log, token } = this.#settings;
    const { path, sha256 } = blob;
    this.#transfers += 1;
    try {
      return await this.#threads.run(blob, partialPath, {
        connections: this.#connections(),
        signal: options.signal,
        token,
        onProgress: options.onProgress,
        onTail: options.onTail,
        onRetry: (note) => {
          log.info({ path, sha256, ...note }, 'fetching on after a fault');
          options.onRetry?.(note.reason);
        },
      });
    } finally {
      this.#transfers -= 1;
    }
  }

  close(): Promise<void> {
    return this.#threads.close();
  }

  /** All that one blob may take while few are fetched; its share of `MAX_CONNECTIONS_IN_ALL` when many are. */
  #connections(): number {
    const { connectionsPerBlob = CONNECTIONS_PER_BLOB } = this.#settings;
    return Math.max(1, Math.min(connectionsPerBlob, Math.floor(MAX_CONNECTIONS_IN_ALL / this.#transfers)));
  }
}
