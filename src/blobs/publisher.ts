/**
 * Publishes what was fetched and proven, for other nodes: after the open was answered, from the cache, in a bounded queue. It
 * never fails an open, and keeps no blob from being evicted but the few that are being written.
 *
 * A destination that fails is told of once, not once a blob, and left alone for a while.
 */

import PQueue from 'p-queue';
import type { Logger } from 'pino';
import type { Destination } from '../destinations/destination.js';
import { messageOf, type TmaxError, toTmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { BlobStore } from './blob-store.js';
import type { Go } from './fetch-turns.js';

/** What became of the blobs that were to be published at one place, since the daemon started. */
export interface PublishStatistics {
  readonly name: string;
  readonly published: number;
  readonly publishedBytes: number;
  /** Were there already. */
  readonly present: number;
  readonly failed: number;
  /** Not even tried: too many were waiting, the destination was being left alone, or the blob was evicted before its turn. */
  readonly skipped: number;
  /** Waiting or being written. */
  readonly queued: number;
  /** The last failure, until one succeeds. */
  readonly failure: { readonly at: string; readonly errno: string; readonly message: string } | undefined;
}

export interface PublisherOptions {
  readonly destinations: readonly Destination[];
  readonly store: BlobStore;
  readonly log: Logger;
}

/** Blobs that wait to be written to one destination. A blob that was evicted meanwhile is published by who fetches it next. */
const MAX_QUEUED = 256;
/** Written to one destination at one time. */
const WRITTEN_AT_ONCE = 2;
/** How long one that is full, or does not answer, is left alone. */
const PAUSE_MS = 60_000;

export class Publisher {
  readonly #lines: readonly Line[];

  constructor({ destinations, store, log }: PublisherOptions) {
    this.#lines = destinations.map((destination) => new Line(destination, store, log));
  }

  /** A blob is ready that came from `source`. Its turn ends once that is done, or given up. */
  publish(blob: BlobAddress, source: string, turn: Go): void {
    const written = this.#lines
      .filter((line) => line.name !== source)
      // It was found there and came from elsewhere all the same: what is there is wrong.
      .map((line) => line.add(blob, line.name === turn.foundAt));
    void Promise.all(written).then(turn.end);
  }

  statistics(): readonly PublishStatistics[] {
    return this.#lines.map((line) => line.statistics());
  }

  /** What is being written is given up; what was published stays. */
  async close(): Promise<void> {
    await Promise.all(this.#lines.map((line) => line.close()));
  }
}

/** Of one destination. */
class Line {
  readonly #destination: Destination;
  readonly #store: BlobStore;
  readonly #log: Logger;
  readonly #queue = new PQueue({ concurrency: WRITTEN_AT_ONCE });
  readonly #closing = new AbortController();
  #counts = { published: 0, publishedBytes: 0, present: 0, failed: 0, skipped: 0 };
  #failure: PublishStatistics['failure'];
  #pausedUntilMs = 0;

  constructor(destination: Destination, store: BlobStore, log: Logger) {
    this.#destination = destination;
    this.#store = store;
    this.#log = log;
  }

  get name(): string {
    return this.#destination.name;
  }

  statistics(): PublishStatistics {
    const queued = this.#queue.size + this.#queue.pending;
    return { name: this.name, ...this.#counts, queued, failure: this.#failure };
  }

  /** Resolves once it is there or given up. Never rejects. */
  async add(blob: BlobAddress, mends: boolean): Promise<void> {
    if (this.#queue.size >= MAX_QUEUED || this.#closing.signal.aborted) this.#counts.skipped += 1;
    else await this.#queue.add(() => this.#put(blob, mends));
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#queue.onIdle();
  }

  async #put(blob: BlobAddress, mends: boolean): Promise<void> {
    const { sha256, sizeBytes, path } = blob;
    const { signal } = this.#closing;
    const opened = signal.aborted || performance.now() < this.#pausedUntilMs ? undefined : this.#openBlob(sha256);
    if (opened === undefined) {
      this.#counts.skipped += 1;
      return;
    }
    try {
      const outcome = await this.#destination.put(blob, this.#store.layout.blob(sha256), { signal, mends });
      if (outcome === 'there') this.#counts.present += 1;
      else {
        this.#counts.published += 1;
        this.#counts.publishedBytes += sizeBytes;
        this.#log.debug({ blob: sha256, path, destination: this.name }, 'published a blob');
      }
      this.#succeeded();
    } catch (thrown) {
      this.#failed(blob, toTmaxError(thrown, this.name));
    } finally {
      this.#store.closeBlob(opened);
    }
  }

  #openBlob(sha256: string) {
    try {
      return this.#store.openBlob(sha256);
    } catch {
      // Whoever opens it next is told what is wrong with the disk of the cache.
      return undefined;
    }
  }

  #succeeded(): void {
    if (this.#failure !== undefined) this.#log.info({ destination: this.name }, `${this.name} is published to again`);
    this.#failure = undefined;
    this.#pausedUntilMs = 0;
  }

  #failed({ sha256, path }: BlobAddress, error: TmaxError): void {
    // Called off with the daemon.
    if (error.errno === 'EINTR') return;
    const { errno } = error;
    const message = messageOf(error);
    this.#counts.failed += 1;
    if (this.#failure?.errno !== errno) {
      const fields = { blob: sha256, path, errno, source: this.name, reason: message };
      this.#log.warn(fields, `images are not published to ${this.name}, and opens go on as without it: ${message}`);
    }
    this.#failure = { at: new Date().toISOString(), errno, message };
    // A blob that is damaged on this disk says nothing of the destination.
    if (errno !== 'EBADMSG') this.#pausedUntilMs = performance.now() + PAUSE_MS;
  }
}
