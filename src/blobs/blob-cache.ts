/**
 * The life of every blob, seen from an open: leased at once where it is ready, else after the one fetch for it. Composes who
 * holds what (`leases.ts`), what is being fetched (`flights.ts`), what takes room (`capacity.ts`) and what is refused
 * (`quarantine.ts`).
 *
 * All state changes between two awaits, on one thread: there is no lock order to keep.
 */

import type { Logger } from 'pino';
import type { Destination } from '../destinations/destination.js';
import { messageOf, TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { Finding } from '../verify/verdict.js';
import { ArchitectureGate, type ArchitecturePolicy } from './architecture-gate.js';
import type { FetchEnvironment } from './blob-fetch.js';
import type { BlobCacheCounts, BlobCacheStatistics, BlobState, Eviction, OpenLabel, PinnedUse } from './blob-report.js';
import type { BlobStore } from './blob-store.js';
import { Capacity, type CapacityLimits } from './capacity.js';
import { FetchTurns } from './fetch-turns.js';
import { Flights, type FlightsOptions } from './flights.js';
import { type Lease, Leases } from './leases.js';
import { ProvenBlobs } from './proven-blobs.js';
import { Publisher } from './publisher.js';
import { Quarantine } from './quarantine.js';
import { interrupted, refusalError } from './refusal.js';

export type { Lease } from './leases.js';

export interface BlobCacheOptions
  extends FlightsOptions,
    Pick<FetchEnvironment, 'sources' | 'prover' | 'verifierVersion' | 'level'> {
  readonly store: BlobStore;
  readonly limits: CapacityLimits;
  readonly architecture: ArchitecturePolicy;
  /** Where what was fetched is written to, for other nodes; none if left out. */
  readonly destinations?: readonly Destination[];
  readonly log: Logger;
}

/** A blob that was proven and then removed by others is fetched again this often before its open fails. */
const MAX_VANISHED = 3;

export class BlobCache {
  readonly #options: BlobCacheOptions;
  readonly #capacity: Capacity;
  readonly #quarantine: Quarantine;
  readonly #proven: ProvenBlobs;
  readonly #gate: ArchitectureGate;
  readonly #leases: Leases;
  readonly #flights: Flights;
  readonly #publisher: Publisher;
  #counts = { hits: 0, misses: 0, evicted: 0 };

  private constructor(options: BlobCacheOptions, quarantine: Quarantine) {
    const { store, log, destinations = [] } = options;
    this.#options = options;
    this.#quarantine = quarantine;
    this.#gate = new ArchitectureGate(options.architecture, log);
    this.#proven = new ProvenBlobs(store, options.level, options.verifierVersion);
    this.#capacity = new Capacity(store, options.limits, (sha256, sizeBytes) => {
      this.#evicted(sha256);
      log.info({ blob: sha256, bytes: sizeBytes }, 'evicted a blob, least recently used, to make room');
    });
    const parts = { store, log, quarantine, capacity: this.#capacity, proven: this.#proven };
    this.#leases = new Leases({ ...parts, gate: this.#gate });
    const isHeld = (sha256: string) => this.#leases.has(sha256);
    this.#publisher = new Publisher({ destinations, store, log });
    const turns = new FetchTurns({ destinations, openTimeoutMs: options.openTimeoutMs, log });
    this.#flights = new Flights({ ...options, ...parts, isHeld, turns, publisher: this.#publisher }, options);
  }

  /** Finds again what earlier runs left below the store's root. */
  static async open(options: BlobCacheOptions): Promise<BlobCache> {
    const quarantine = new Quarantine(options.store.layout, options.level, options.verifierVersion);
    await quarantine.load();
    const cache = new BlobCache(options, quarantine);
    const isWritable = await options.store.isWritable();
    if (!isWritable) {
      const { root } = options.store.layout;
      options.log.error(
        { cache: root },
        `the cache directory ${root} can't be written: what is there is served, nothing can be fetched`,
      );
    }
    if (!options.store.locks.isKernel) {
      const { root } = options.store.layout;
      options.log.warn(
        { cache: root },
        `flock does not work, or not between machines, on the file system of ${root}: lease files take its place. Daemons that share it find out within a minute ` +
          'that another was killed, and what a killed one had open may be evicted; a --cache-dir on a local disk has neither',
      );
    }
    await cache.#capacity.load(isWritable);
    if (!isWritable) return cache;
    await options.store.removeLeft((sha256) => cache.#capacity.has(sha256));
    await cache.#capacity.shrink().catch((error: unknown) => {
      options.log.error({ reason: messageOf(error) }, 'the cache holds more than it may, and can’t be made smaller');
    });
    return cache;
  }

  /**
   * Leases a blob: at once where it is ready, else as soon as the fetch that it joins or starts has proven it.
   * Errors: EBADMSG refused; ETIMEDOUT; EINTR aborted; those of the fetch.
   */
  open(address: BlobAddress, label: OpenLabel, signal: AbortSignal): Lease | Promise<Lease> {
    const lease = this.#leases.take(address);
    if (lease !== undefined) {
      this.#counts.hits += 1;
      return lease;
    }
    this.#refuseIfQuarantined(address);
    this.#counts.misses += 1;
    return this.#openAbsent(address, label, signal);
  }

  /**
   * Makes a blob ready without holding it open, behind every fetch that an open waits for. What is there already keeps its
   * place in the order of eviction. Ends at once when the signal is aborted, and the fetch with it where nobody else wants it.
   * `keep`: blobs that are not evicted for this one.
   * Errors: as `open`; ENOSPC also where only evicting `keep` would make room.
   */
  async bring(address: BlobAddress, label: OpenLabel, signal: AbortSignal, keep: ReadonlySet<string>): Promise<void> {
    if (signal.aborted) throw interrupted(address);
    if (this.isReady(address)) return;
    this.#refuseIfQuarantined(address);
    await this.#flights.back(address, label, signal, keep);
  }

  /** Whether the blob is on disk and proven, looked up on the disk. */
  isReady(address: BlobAddress): boolean {
    return this.#leases.isReady(address);
  }

  /**
   * Whether all these blobs can be on disk at one time, beside what is held open.
   * Errors: ENOSPC with the numbers.
   */
  async checkFits(addresses: ReadonlyMap<string, BlobAddress>): Promise<void> {
    const sizes = new Map([...addresses].map(([sha256, { sizeBytes }]) => [sha256, sizeBytes]));
    await this.#capacity.checkFits(sizes);
  }

  state(sha256: string): BlobState {
    const inFlight = this.#flights.state(sha256);
    if (inFlight !== undefined) return inFlight;
    const record = this.#quarantine.get(sha256);
    if (record !== undefined) return { state: 'quarantined', record };
    const failure = this.#flights.failure(sha256);
    if (!this.#capacity.has(sha256)) return { state: 'absent', failure };
    const proof = this.#proven.claimed(sha256);
    if (proof === undefined) return { state: 'unproven', failure };
    return { state: 'ready', architecture: proof.architecture, refusal: this.#gate.refusal(proof) };
  }

  /** Whether a blob is on disk and nobody here holds it open. */
  isIdle(sha256: string): boolean {
    return this.#capacity.has(sha256) && !this.#leases.has(sha256);
  }

  get isFetching(): boolean {
    return !this.#flights.isEmpty;
  }

  /** Takes a blob that was found damaged out of service. It is fetched anew at its next open. */
  async drop(sha256: string, finding: Finding): Promise<void> {
    this.#options.log.warn(
      { blob: sha256, ...finding },
      `a blob in the cache is damaged: ${finding.message}; it is removed, and fetched anew at its next open`,
    );
    this.#proven.distrust(sha256);
    const isGone = await this.#options.store.removeDamaged(sha256);
    this.#proven.forget(sha256);
    if (isGone) this.#capacity.forget(sha256);
  }

  /** Removes a blob from the disk, unless somebody uses or keeps it. Errors: those of the disk. */
  async evict(sha256: string): Promise<Eviction> {
    const { store, log } = this.#options;
    if (this.#flights.has(sha256)) return 'fetching';
    if (!this.#leases.has(sha256) && !store.isThere(sha256)) return 'absent';
    if (store.pins.has(sha256)) return 'pinned';
    if (!(await store.evict(sha256))) {
      if (store.pins.has(sha256)) return 'pinned';
      return this.#leases.has(sha256) ? 'open' : 'in use elsewhere';
    }
    this.#capacity.forget(sha256);
    this.#evicted(sha256);
    log.info({ blob: sha256 }, 'evicted a blob, as it was told to');
    return 'evicted';
  }

  /** Errors: those of the disk. */
  async pin(blobs: Iterable<string>): Promise<void> {
    await this.#options.store.pins.add(blobs);
  }

  /** What only pins have kept above the limits goes. Errors: those of the disk. */
  async unpin(blobs: Iterable<string>): Promise<void> {
    await this.#options.store.pins.remove(blobs);
    await this.#capacity.shrink();
  }

  /** Whether a blob is on disk, whoever brought it, proven or not. */
  isThere(sha256: string): boolean {
    return this.#options.store.isThere(sha256);
  }

  /** Where a blob lies while it is leased, for readers alone. */
  pathOf(sha256: string): string {
    return this.#options.store.layout.blob(sha256);
  }

  /** Whether a blob is never evicted, on disk or not. */
  isPinned(sha256: string): boolean {
    return this.#options.store.pins.has(sha256);
  }

  async pinned(): Promise<PinnedUse> {
    const { store } = this.#options;
    let [blobs, bytes, absentBlobs] = [0, 0, 0];
    for (const sha256 of await store.pins.list()) {
      const sizeBytes = await store.sizeOf(sha256);
      if (sizeBytes === undefined) absentBlobs += 1;
      else [blobs, bytes] = [blobs + 1, bytes + sizeBytes];
    }
    return { blobs, bytes, absentBlobs };
  }

  statistics(): BlobCacheStatistics {
    return {
      ...this.#counts,
      ...this.#flights.statistics(),
      use: this.#capacity.use(),
      quarantine: this.#quarantine.records(),
      publishing: this.#publisher.statistics(),
    };
  }

  counts(): BlobCacheCounts {
    return {
      use: this.#capacity.use(),
      evicted: this.#counts.evicted,
      fetches: this.#flights.phases(),
      quarantined: this.#quarantine.counts(),
      publishing: this.#publisher.statistics(),
    };
  }

  /** Looks at the disk, and answers for each blob whether it is there, whole and proven, or quarantined. */
  async onDisk(): Promise<(sha256: string) => { isReady: boolean; isQuarantined: boolean }> {
    const ready = new Set<string>();
    for (const stored of await this.#options.store.list()) {
      if (this.#proven.proofOf(stored) !== undefined) ready.add(stored.sha256);
    }
    return (sha256) => ({ isReady: ready.has(sha256), isQuarantined: this.#quarantine.get(sha256) !== undefined });
  }

  /** Ends every fetch; what is on disk of them stays for a resume. Leases stay valid. */
  async close(): Promise<void> {
    await this.#flights.close();
    await this.#publisher.close();
    await this.#leases.close();
    await this.#capacity.close();
  }

  /** Errors: EBADMSG. While a fetch is under way its own end decides: a source that failed may be followed by one that does not. */
  #refuseIfQuarantined({ sha256, commit }: BlobAddress): void {
    const refusal = this.#flights.has(sha256) ? undefined : this.#quarantine.refusal(sha256, commit);
    if (refusal !== undefined) throw refusalError(refusal);
  }

  #openAbsent(address: BlobAddress, label: OpenLabel, signal: AbortSignal, vanished = 0): Promise<Lease> {
    return this.#flights.wait(address, label, signal, () => {
      const lease = this.#leases.take(address);
      if (lease !== undefined) return lease;
      if (vanished >= MAX_VANISHED) throw somethingElseChanges(address);
      return this.#openAbsent(address, label, signal, vanished + 1);
    });
  }

  #evicted(sha256: string): void {
    this.#counts.evicted += 1;
    this.#proven.forget(sha256);
    this.#gate.forget(sha256);
    this.#leases.forget(sha256);
  }
}

function somethingElseChanges({ path }: BlobAddress): TmaxError {
  const words = `${path} was fetched and proven, and then was not in the cache: something else changes files there`;
  return new TmaxError('EIO', `${words}; open it again, once it is closed everywhere`, {
    source: 'cache',
    level: 'error',
  });
}
