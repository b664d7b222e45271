/** The Hub as a source of blobs. */

import { transferBlob } from './blob-transfer.js';
import { HubHttp } from './hub-http.js';
import type { HubSettings } from './hub-settings.js';
import { type RetrySettings, TRANSFER_RETRY } from './limits.js';
import { RateGovernor } from './rate-governor.js';
import type { BlobAddress, Download, DownloadOptions, Source } from './source.js';

export interface HubSourceSettings extends HubSettings {
  /** Connections that one large blob may take. */
  readonly connectionsPerBlob: number;
  readonly retry?: RetrySettings;
}

export class HubSource implements Source {
  readonly name = 'hub';
  readonly #settings: HubSourceSettings;
  readonly #retry: RetrySettings;
  readonly #http: HubHttp;

  /** Errors: EINVAL endpoint or certificate file. */
  constructor(settings: HubSourceSettings, governor = new RateGovernor()) {
    this.#settings = settings;
    this.#retry = settings.retry ?? TRANSFER_RETRY;
    this.#http = new HubHttp(settings, governor, this.#retry.maxPauseMs);
  }

  async download(blob: BlobAddress, partialPath: string, { signal, onProgress }: DownloadOptions): Promise<Download> {
    const { path, sha256 } = blob;
    return transferBlob(blob, partialPath, {
      http: this.#http,
      retry: this.#retry,
      connections: this.#settings.connectionsPerBlob,
      signal,
      onProgress,
      onRetry: (note) => this.#settings.log.info({ path, sha256, ...note }, 'fetching on after a fault'),
    });
  }

  async close(): Promise<void> {
    await this.#http.close();
  }
}
