/** A source that is asked over HTTP: the Hub, a web server, a store of objects. The work is done in the fetch threads. */

import { availableParallelism } from 'node:os';
import type { Logger } from 'pino';
import { checkConnectionSettings } from './dispatchers.js';
import { FetchThreads } from './fetch-threads.js';
import type { HttpSettings } from './http-client.js';
import {
  BRIEF_RETRY,
  CONNECTIONS_PER_BLOB,
  MAX_CONNECTIONS_IN_ALL,
  MAX_FETCH_THREADS,
  type RetrySettings,
  TRANSFER_RETRY,
} from './limits.js';
import type { LocatorSettings } from './locator.js';
import { settingsByPatience } from './patience.js';
import type { RateGovernor } from './rate-governor.js';
import type { BlobAddress, Download, DownloadOptions, Source } from './source.js';
import { SourceHealth } from './source-health.js';

export interface RemoteSourceSettings extends HttpSettings {
  readonly log: Logger;
  /** Connections that one large blob may take; default `CONNECTIONS_PER_BLOB`. */
  readonly connectionsPerBlob?: number;
  /** Default: one for two cores, at most `MAX_FETCH_THREADS`. */
  readonly threads?: number;
  /** How long threads without a transfer are kept; default `IDLE_THREADS_MS`. */
  readonly idleThreadsMs?: number;
  readonly retry?: RetrySettings;
  /** Where another source can be asked; default `BRIEF_RETRY`. */
  readonly briefRetry?: RetrySettings;
}

/** Which source it is. */
export interface RemoteIdentity {
  /** See `Source.name`; it may hold no secret. */
  readonly name: string;
  readonly locator: LocatorSettings;
  /** What it is to be asked with, of the moment; see `Locator`. */
  readonly secret: () => Promise<string | undefined>;
  /** Each blob comes by one request, from its first byte to its last; default: in ranges, over several connections. */
  readonly isOneStream?: boolean;
}

export class RemoteSource implements Source {
  readonly name: string;
  readonly health = new SourceHealth();
  readonly perseveres = true;
  readonly #secret: () => Promise<string | undefined>;
  readonly #isOneStream: boolean;
  readonly #settings: RemoteSourceSettings;
  readonly #threads: FetchThreads;
  #transfers = 0;

  /** No thread is started before the first download. Errors: EINVAL proxy or certificate file. */
  constructor(identity: RemoteIdentity, settings: RemoteSourceSettings, governor: RateGovernor) {
    const { name, locator, secret, isOneStream = false } = identity;
    const { retry = TRANSFER_RETRY } = settings;
    const { threads = Math.min(MAX_FETCH_THREADS, Math.ceil(availableParallelism() / 2)), idleThreadsMs: idleMs } =
      settings;
    checkConnectionSettings(settings);
    this.name = name;
    this.#secret = secret;
    this.#isOneStream = isOneStream;
    this.#settings = settings;
    const http = httpSettings(settings);
    const data = {
      name,
      locator,
      patience: settingsByPatience(http, retry, settings.briefRetry ?? BRIEF_RETRY),
      governorMemory: governor.memory,
    };
    const onDeath = (error: unknown) =>
      settings.log.error({ err: error, source: name }, 'a fetch thread died and is replaced');
    this.#threads = new FetchThreads(data, { threads, idleMs, onDeath });
  }

  /** Threads there are now: none while nothing is fetched. */
  get threadCount(): number {
    return this.#threads.threadCount;
  }

  async download(blob: BlobAddress, partialPath: string, options: DownloadOptions): Promise<Download> {
    const { log } = this.#settings;
    const { path, sha256 } = blob;
    this.#transfers += 1;
    try {
      return await this.#threads.run(blob, partialPath, {
        connections: this.#connections(),
        patience: options.patience ?? 'patient',
        signal: options.signal,
        secret: this.#secret,
        onProgress: options.onProgress,
        onTail: this.#isOneStream ? undefined : options.onTail,
        onRetry: (note) => {
          log.info({ source: this.name, path, sha256, ...note }, 'fetching on after a fault');
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
    if (this.#isOneStream) return 1;
    const { connectionsPerBlob = CONNECTIONS_PER_BLOB } = this.#settings;
    return Math.max(1, Math.min(connectionsPerBlob, Math.floor(MAX_CONNECTIONS_IN_ALL / this.#transfers)));
  }
}

/** Plain data alone, for the threads. */
export function httpSettings(settings: RemoteSourceSettings): HttpSettings {
  const { userAgent, proxy, forwardProxy, caFile } = settings;
  const { connectTimeoutMs, headersTimeoutMs, idleTimeoutMs, minBytesPerSecond, speedWindowMs } = settings;
  const deadlines = { connectTimeoutMs, headersTimeoutMs, idleTimeoutMs, minBytesPerSecond, speedWindowMs };
  return { ...deadlines, userAgent, proxy, forwardProxy, caFile };
}
