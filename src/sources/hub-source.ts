/** The Hub as a source of blobs; the work is done in the fetch threads. */

import { availableParallelism } from 'node:os';
import { checkConnectionSettings } from './dispatchers.js';
import { FetchThreads } from './fetch-threads.js';
import { type HubSettings, parseEndpoint } from './hub-settings.js';
import { CONNECTIONS_PER_BLOB, MAX_FETCH_THREADS, type RetrySettings, TRANSFER_RETRY } from './limits.js';
import { RateGovernor } from './rate-governor.js';
import type { BlobAddress, Download, DownloadOptions, Source } from './source.js';

export interface HubSourceSettings extends HubSettings {
  /** Connections that one large blob may take; default `CONNECTIONS_PER_BLOB`. */
  readonly connectionsPerBlob?: number;
  /** Default: one per core, at most `MAX_FETCH_THREADS`. */
  readonly threads?: number;
  readonly retry?: RetrySettings;
}

export class HubSource implements Source {
  readonly name = 'hub';
  readonly #settings: HubSourceSettings;
  readonly #threads: FetchThreads;

  /** Starts the threads. Errors: EINVAL endpoint, proxy or certificate file. */
  constructor(settings: HubSourceSettings, governor = new RateGovernor()) {
    const { endpoint, connectTimeoutMs, headersTimeoutMs, idleTimeoutMs, userAgent, proxy, caFile } = settings;
    const { connectionsPerBlob = CONNECTIONS_PER_BLOB, retry = TRANSFER_RETRY } = settings;
    const { threads = Math.min(MAX_FETCH_THREADS, availableParallelism()) } = settings;
    parseEndpoint(endpoint);
    checkConnectionSettings(settings);
    this.#settings = settings;
    const http = { connectTimeoutMs, headersTimeoutMs, idleTimeoutMs, userAgent, proxy, caFile };
    const governorMemory = governor.memory;
    this.#threads = new FetchThreads({ endpoint, http, retry, connectionsPerBlob, governorMemory }, threads, (error) =>
      settings.log.error({ err: error }, 'a fetch thread died and is replaced'),
    );
  }

  download(blob: BlobAddress, partialPath: string, { signal, onProgress }: DownloadOptions): Promise<Download> {
    const { log, token } = this.#settings;
    const { path, sha256 } = blob;
    return this.#threads.run(blob, partialPath, {
      signal,
      token,
      onProgress,
      onRetry: (note) => log.info({ path, sha256, ...note }, 'fetching on after a fault'),
    });
  }

  close(): Promise<void> {
    return this.#threads.close();
  }
}
