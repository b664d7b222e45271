/**
 * The life of every blob, seen from an open: leased at once where it is ready, else after the one fetch for it.
 *
 * Ownership: a `LeasedBlob` owns its descriptor (and so its flock) while its count is above zero; `Capacity` is told of each change.
 * All state changes between two awaits, on one thread: there is no lock order to keep.
 */

import { setMaxListeners } from 'node:events';
import { closeSync } from 'node:fs';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { messageOf, TmaxError } from '../errors.js';
import { startLongTimer } from '../long-timer.js';
import type { BlobAddress } from '../sources/source.js';
import type { Finding } from '../verify/verdict.js';
import { ArchitectureGate, type ArchitecturePolicy } from './architecture-gate.js';
import { type FetchEnvironment, type FetchProgress, type FetchResult, fetchBlob } from './blob-fetch.js';
import type { BlobCacheCounts, BlobCacheStatistics, BlobState, FailedFetch, OpenLabel } from './blob-report.js';
import { type BlobStore, diskError, type OpenBlob } from './blob-store.js';
import { Capacity, type CapacityLimits } from './capacity.js';
import { FetchQueue, type QueuedFetch, type RunOutcome } from './fetch-queue.js';
import type { Proof } from './proof.js';
import { ProvenBlobs } from './proven-blobs.js';
import { Quarantine } from './quarantine.js';
import { interrupted, refusalError } from './refusal.js';

export interface BlobCacheOptions extends Pick<FetchEnvironment, 'sources' | 'prover' | 'verifierVersion' | 'level'> {
  readonly store: BlobStore;
  readonly limits: CapacityLimits;
  /** How long an open waits for its blob; the fetch itself goes on. */
  readonly openTimeoutMs: number;
  /** Fetches at one time; further ones queue. */
  readonly maxFetches: number;
  readonly architecture: ArchitecturePolicy;
  readonly log: Logger;
}

/** A blob held open. Its bytes stay readable through `descriptor` until `release`, whatever happens to the cache. */
export interface Lease {
  readonly descriptor: number;
  release(): void;
}

interface LeasedBlob {
  readonly descriptor: number;
  readonly sizeBytes: number;
  readonly modifiedSeconds: number;
  count: number;
}

/** A fetch that is queued, under way, or has given way; it has one end, told to all who wait. */
interface Flight extends QueuedFetch {
  readonly address: BlobAddress;
  readonly label: OpenLabel;
  readonly startedAtMs: number;
  readonly progress: FetchProgress;
  /** Opens. */
  readonly waiters: Set<Waiter>;
  /** Prefetches. A flight that only they wanted ends with the last of them. */
  readonly backers: Set<Backer>;
  /** It goes on whoever leaves, since an open has asked for it. */
  isWanted: boolean;
}

/** A prefetch that waits for a flight. */
interface Backer extends Waiter {
  /** Blobs that must not be evicted for it. */
  readonly keep: ReadonlySet<string>;
}

/** An open that waits for a flight. Told in the very turn in which the blob becomes ready, before anything can evict it. */
interface Waiter {
  readonly landed: () => void;
  readonly failed: (error: TmaxError) => void;
}

/** Failures that `status` shows. */
const MAX_LAST_FAILURES = 20;
/** How often it is tried whether another process has ended its fetch of the same blob; without a place in the queue meanwhile. */
const LOCK_POLL_MS = 250;
/** A blob that was proven and then removed by others is fetched again this often before its open fails. */
const MAX_VANISHED = 3;
/** Blobs whose last failure is remembered, for their extended attributes. */
const MAX_FAILURES = 4096;
/** Last use is written to disk at most this often per blob: it only orders eviction after a restart. */
const TOUCH_INTERVAL_MS = 60_000;

export class BlobCache {
  readonly #options: BlobCacheOptions;
  readonly #environment: FetchEnvironment;
  readonly #capacity: Capacity;
  readonly #quarantine: Quarantine;
  readonly #queue: FetchQueue;
  readonly #leased = new Map<string, LeasedBlob>();
  readonly #flights = new Map<string, Flight>();
  readonly #proven: ProvenBlobs;
  readonly #gate: ArchitectureGate;
  readonly #touchedAtMs = new Map<string, number>();
  readonly #touches = new Set<Promise<void>>();
  readonly #lastFailures: FailedFetch[] = [];
  /** Why the last fetch of a blob failed, by sha256, until one succeeds. */
  readonly #failures = new LRUCache<string, string>({ max: MAX_FAILURES });
  readonly #stopping = new AbortController();
  #counts = { hits: 0, misses: 0, fetched: 0, fetchedBytes: 0, failed: 0, evicted: 0 };

  private constructor(options: BlobCacheOptions, quarantine: Quarantine) {
    this.#options = options;
    this.#quarantine = quarantine;
    // Every fetch listens to it, in several places.
    setMaxListeners(0, this.#stopping.signal);
    this.#queue = new FetchQueue(options.maxFetches);
    this.#gate = new ArchitectureGate(options.architecture, options.log);
    this.#proven = new ProvenBlobs(options.store, options.level, options.verifierVersion);
    this.#capacity = new Capacity(options.store, options.limits, (sha256, sizeBytes) => {
      this.#counts.evicted += 1;
      this.#proven.forget(sha256);
      this.#gate.forget(sha256);
      this.#touchedAtMs.delete(sha256);
      options.log.info({ blob: sha256, bytes: sizeBytes }, 'evicted a blob, least recently used, to make room');
    });
    const isHeld = (sha256: string) => this.#leased.has(sha256);
    this.#environment = { ...options, quarantine, capacity: this.#capacity, proven: this.#proven, isHeld };
  }

  /** Finds again what earlier runs left below the store's root. */
  static async open(options: BlobCacheOptions): Promise<BlobCache> {
    const quarantine = new Quarantine(options.store.layout, options.level, options.verifierVersion);
    await quarantine.load();
    const cache = new BlobCache(options, quarantine);
    if (!(await options.store.isWritable())) {
      const { root } = options.store.layout;
      options.log.error(
        { cache: root },
        `the cache directory ${root} can't be written: what is there is served, nothing can be fetched`,
      );
    }
    await options.store.removeStrays();
    for (const { sha256, sizeBytes } of await options.store.list()) cache.#capacity.idle(sha256, sizeBytes);
    for (const { sha256, sizeBytes } of await options.store.scanPartials()) cache.#capacity.abandon(sha256, sizeBytes);
    await cache.#capacity.shrink();
    return cache;
  }

  /**
   * Leases a blob: at once where it is ready, else as soon as the fetch that it joins or starts has proven it.
   * Errors: EBADMSG refused; ETIMEDOUT; EINTR aborted; those of the fetch.
   */
  open(address: BlobAddress, label: OpenLabel, signal: AbortSignal): Lease | Promise<Lease> {
    const lease = this.#leaseReady(address);
    if (lease !== undefined) {
      this.#counts.hits += 1;
      return lease;
    }
    // While a fetch is under way its own end decides: a source that failed may be followed by one that does not.
    const refusal = this.#flights.has(address.sha256)
      ? undefined
      : this.#quarantine.refusal(address.sha256, address.commit);
    if (refusal !== undefined) throw refusalError(refusal);
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
    const { sha256, commit } = address;
    const refusal = this.#flights.has(sha256) ? undefined : this.#quarantine.refusal(sha256, commit);
    if (refusal !== undefined) throw refusalError(refusal);
    const known = this.#flights.get(sha256);
    const flight = known ?? this.#makeFlight(address, label);
    await new Promise<void>((resolve, reject) => {
      const settle = (act: () => void) => {
        signal.removeEventListener('abort', onAbort);
        flight.backers.delete(backer);
        act();
      };
      const onAbort = () => {
        settle(() => reject(interrupted(address)));
        this.#cancelUnwanted(flight);
      };
      const backer = {
        keep,
        landed: () => settle(resolve),
        failed: (error: TmaxError) => settle(() => reject(error)),
      };
      flight.backers.add(backer);
      signal.addEventListener('abort', onAbort, { once: true });
      if (known === undefined) this.#queue.add(flight);
    });
  }

  /** Whether the blob is on disk and proven, looked up on the disk. */
  isReady(address: BlobAddress): boolean {
    if (this.#leased.has(address.sha256)) return true;
    const opened = this.#openProven(address);
    if (opened === undefined) return false;
    closeSync(opened.descriptor);
    return true;
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
    const flight = this.#flights.get(sha256);
    if (flight !== undefined) {
      const { phase, receivedBytes } = flight.progress;
      return { state: phase, receivedBytes, waiters: flight.waiters.size };
    }
    const record = this.#quarantine.get(sha256);
    if (record !== undefined) return { state: 'quarantined', record };
    if (!this.#capacity.has(sha256)) return { state: 'absent', failure: this.#failures.get(sha256) };
    const proof = this.#proven.claimed(sha256);
    if (proof === undefined) return { state: 'unproven', failure: this.#failures.get(sha256) };
    return { state: 'ready', architecture: proof.architecture, refusal: this.#gate.refusal(proof) };
  }

  /** Whether a blob is on disk and nobody here holds it open. */
  isIdle(sha256: string): boolean {
    return this.#capacity.has(sha256) && !this.#leased.has(sha256);
  }

  get isFetching(): boolean {
    return this.#flights.size > 0;
  }

  /** Takes a blob that was found damaged out of service. It is fetched anew at its next open. */
  async drop(sha256: string, finding: Finding): Promise<void> {
    this.#options.log.warn(
      { blob: sha256, ...finding },
      `a blob in the cache is damaged: ${finding.message}; it is removed, and fetched anew at its next open`,
    );
    await this.#options.store.withdrawProof(sha256);
    this.#proven.forget(sha256);
    if (await this.#options.store.remove(sha256)) this.#capacity.forget(sha256);
  }

  statistics(): BlobCacheStatistics {
    return {
      ...this.#counts,
      use: this.#capacity.use(),
      flights: [...this.#flights.values()].map(({ address, label, startedAtMs, progress, waiters }) => {
        return { address, label, startedAtMs, ...progress, waiters: waiters.size };
      }),
      quarantine: this.#quarantine.records(),
      lastFailures: this.#lastFailures,
    };
  }

  counts(): BlobCacheCounts {
    const fetches = { queued: 0, fetching: 0, verifying: 0, publishing: 0 };
    for (const { progress } of this.#flights.values()) fetches[progress.phase] += 1;
    const { evicted } = this.#counts;
    return { use: this.#capacity.use(), evicted, fetches, quarantined: this.#quarantine.counts() };
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
    this.#stopping.abort();
    await this.#queue.idle();
    await Promise.all(this.#touches);
  }

  /** Errors: EBADMSG it is for another machine, and that is not to be served. */
  #leaseReady(address: BlobAddress): Lease | undefined {
    const { sha256 } = address;
    const leased = this.#leased.get(sha256);
    if (leased !== undefined) {
      // Somebody may have found it damaged since it was opened first.
      if (this.#provenAndServed(address, leased) === undefined) return undefined;
      leased.count += 1;
      return this.#lease(sha256, leased);
    }
    const opened = this.#openProven(address);
    if (opened === undefined) return undefined;
    const first = { ...opened, count: 1 };
    this.#leased.set(sha256, first);
    this.#capacity.lease(sha256, first.sizeBytes);
    return this.#lease(sha256, first);
  }

  #openProven(address: BlobAddress): OpenBlob | undefined {
    const { sha256 } = address;
    const opened = this.#options.store.openBlob(sha256);
    if (opened === undefined) {
      this.#capacity.forget(sha256);
      this.#proven.forget(sha256);
      return undefined;
    }
    let proof: Proof | undefined;
    try {
      proof = this.#provenAndServed(address, opened);
    } finally {
      if (proof === undefined) closeSync(opened.descriptor);
    }
    return proof === undefined ? undefined : opened;
  }

  #provenAndServed(
    { sha256, sizeBytes, path }: BlobAddress,
    file: { readonly sizeBytes: number; readonly modifiedSeconds: number },
  ): Proof | undefined {
    const proof = file.sizeBytes === sizeBytes ? this.#proven.proofOf({ sha256, ...file }) : undefined;
    if (proof !== undefined) this.#gate.admit(proof, path);
    return proof;
  }

  #lease(sha256: string, leased: LeasedBlob): Lease {
    let released = false;
    return {
      descriptor: leased.descriptor,
      release: () => {
        if (released) return;
        released = true;
        leased.count -= 1;
        if (leased.count > 0) return;
        this.#leased.delete(sha256);
        closeSync(leased.descriptor);
        this.#capacity.idle(sha256, leased.sizeBytes);
        this.#touch(sha256, leased.modifiedSeconds);
        // Nothing keeps it from being fetched anew any more.
        if (this.#quarantine.get(sha256)?.cause === 'disk') void this.#quarantine.remove(sha256);
      },
    };
  }

  #touch(sha256: string, modifiedSeconds: number): void {
    const now = Date.now();
    if (now - (this.#touchedAtMs.get(sha256) ?? 0) < TOUCH_INTERVAL_MS) return;
    this.#touchedAtMs.set(sha256, now);
    const touch = this.#options.store.touch(sha256, modifiedSeconds).catch((error: unknown) => {
      this.#options.log.debug(
        { blob: sha256, reason: messageOf(error) },
        'the last use of a blob could not be written down',
      );
    });
    this.#touches.add(touch);
    void touch.finally(() => this.#touches.delete(touch));
  }

  /** Waits for the flight's end, the caller's, or the end of its patience, whichever comes first. */
  #openAbsent(address: BlobAddress, label: OpenLabel, signal: AbortSignal, vanished = 0): Promise<Lease> {
    const known = this.#flights.get(address.sha256);
    const flight = known ?? this.#makeFlight(address, label);
    return new Promise((resolve, reject) => {
      const settle = (act: () => void) => {
        timer.cancel();
        signal.removeEventListener('abort', onAbort);
        flight.waiters.delete(waiter);
        act();
      };
      const waiter: Waiter = {
        landed: () =>
          settle(() => {
            try {
              const lease = this.#leaseReady(address);
              if (lease !== undefined) resolve(lease);
              else if (vanished < MAX_VANISHED) resolve(this.#openAbsent(address, label, signal, vanished + 1));
              else throwVanished(address);
            } catch (error) {
              reject(error);
            }
          }),
        failed: (error) => settle(() => reject(error)),
      };
      const onAbort = () => settle(() => reject(interrupted(address)));
      const tooLate = () => settle(() => reject(this.#tooLate(flight)));
      const timer = startLongTimer(tooLate, this.#options.openTimeoutMs);
      flight.isWanted = true;
      flight.waiters.add(waiter);
      signal.addEventListener('abort', onAbort, { once: true });
      if (signal.aborted) onAbort();
      // Only now does the queue see for whom it is.
      if (known === undefined) this.#queue.add(flight);
      else this.#queue.dispatch();
    });
  }

  #tooLate({ address, progress }: Flight): TmaxError {
    const seconds = Math.round(this.#options.openTimeoutMs / 1000);
    const words = `${address.path} is still ${progress.phase} after ${seconds} s (${progress.receivedBytes} of ${address.sizeBytes} bytes)`;
    return new TmaxError('ETIMEDOUT', `${words}; the fetch goes on: open it again`, { source: 'cache' });
  }

  /** To be queued once somebody waits for it. */
  #makeFlight(address: BlobAddress, label: OpenLabel): Flight {
    const progress: FetchProgress = {
      phase: 'queued',
      receivedBytes: 0,
      source: undefined,
      faults: 0,
      lastFault: undefined,
    };
    const flight: Flight = {
      address,
      label,
      startedAtMs: Date.now(),
      progress,
      waiters: new Set(),
      backers: new Set(),
      isWanted: false,
      get waiterCount() {
        return this.waiters.size;
      },
      get mayGiveWay() {
        return progress.phase === 'fetching' || progress.phase === 'queued';
      },
      run: (signal) => this.#fly(flight, signal),
    };
    this.#flights.set(address.sha256, flight);
    return flight;
  }

  /** Never rejects: how it ends is told to the waiters, the log and `status`. */
  async #fly(flight: Flight, signal: AbortSignal): Promise<RunOutcome> {
    const { address, progress, backers, waiters } = flight;
    const isForeground = waiters.size > 0;
    const keep = isForeground ? new Set<string>() : new Set([...backers].flatMap((backer) => [...backer.keep]));
    try {
      const stop = AbortSignal.any([this.#stopping.signal, signal]);
      const result = await fetchBlob(this.#environment, address, progress, stop, keep);
      if (result === undefined && !stop.aborted && isStillWanted(flight)) {
        progress.phase = 'queued';
        return { kind: 'later', afterMs: LOCK_POLL_MS };
      }
      if (result === undefined) throw interrupted(address);
      this.#flights.delete(address.sha256);
      this.#landed(flight, result);
    } catch (thrown) {
      if (signal.aborted && !this.#stopping.signal.aborted && isStillWanted(flight)) {
        progress.phase = 'queued';
        return { kind: 'later', afterMs: 0 };
      }
      this.#flights.delete(address.sha256);
      this.#failed(flight, diskError(thrown, `the fetch of ${address.path} failed`));
    }
    return { kind: 'over' };
  }

  #cancelUnwanted(flight: Flight): void {
    if (isStillWanted(flight) || !this.#queue.cancel(flight)) return;
    this.#flights.delete(flight.address.sha256);
  }

  #landed({ address, label, startedAtMs, waiters, backers }: Flight, result: FetchResult): void {
    const { sha256, sizeBytes } = address;
    this.#failures.delete(sha256);
    if (!this.#leased.has(sha256)) this.#capacity.idle(sha256, sizeBytes);
    for (const waiter of [...waiters, ...backers]) waiter.landed();
    if (result.source === 'cache') return;
    this.#counts.fetched += 1;
    this.#counts.fetchedBytes += result.downloadedBytes;
    this.#options.log.info(
      { ...label, blob: sha256, bytes: sizeBytes, seconds: secondsSince(startedAtMs), source: result.source },
      `fetched ${label.variant}/${label.task}`,
    );
  }

  #failed({ address, label, startedAtMs, waiters, backers }: Flight, error: TmaxError): void {
    const { sha256, path } = address;
    const { errno, source, level } = error;
    const reason = messageOf(error);
    // A fetch that was called off has not failed.
    if (errno !== 'EINTR') {
      this.#counts.failed += 1;
      this.#failures.set(sha256, `${errno}: ${reason}`);
      this.#lastFailures.push({ at: new Date().toISOString(), path, errno, message: reason });
      if (this.#lastFailures.length > MAX_LAST_FAILURES) this.#lastFailures.shift();
    }
    this.#options.log[level](
      { ...label, blob: sha256, errno, source, seconds: secondsSince(startedAtMs), reason },
      `fetch of ${label.variant}/${label.task} failed: ${errno}`,
    );
    for (const waiter of [...waiters, ...backers]) waiter.failed(error);
  }
}

function throwVanished(address: BlobAddress): never {
  const words = `${address.path} was fetched and proven, and then was not in the cache: something else changes files there`;
  throw new TmaxError('EIO', `${words}; open it again, once it is closed everywhere`, {
    source: 'cache',
    level: 'error',
  });
}

function isStillWanted({ isWanted, backers }: Flight): boolean {
  return isWanted || backers.size > 0;
}

function secondsSince(startedAtMs: number): number {
  return Math.round(Date.now() - startedAtMs) / 1000;
}
