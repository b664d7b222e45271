/**
 * Fetches, each one for however many wait: opens, which go first, and prefetches. A fetch that an open has asked for goes on
 * whoever leaves; one that only prefetches wanted ends with the last of them.
 *
 * All state changes between two awaits, on one thread. Who waits is told in the very turn in which the blob becomes ready,
 * before anything can evict it.
 */

import { setMaxListeners } from 'node:events';
import { diskError } from '../disk-error.js';
import { TmaxError } from '../errors.js';
import { startLongTimer } from '../long-timer.js';
import type { BlobAddress } from '../sources/source.js';
import {
  type FetchEnvironment,
  type FetchPhase,
  type FetchProgress,
  type FetchResult,
  fetchBlob,
} from './blob-fetch.js';
import type { BlobState, FailedFetch, FetchInFlight, OpenLabel } from './blob-report.js';
import { FetchOutcomes } from './fetch-outcomes.js';
import { FetchQueue, type QueuedFetch, type RunOutcome } from './fetch-queue.js';
import { isFull } from './full-disk.js';
import { interrupted } from './refusal.js';

/** A fetch that is queued, under way, or has given way; it has one end, told to all who wait. */
interface Flight extends QueuedFetch {
  readonly address: BlobAddress;
  readonly label: OpenLabel;
  readonly startedAtMs: number;
  readonly progress: FetchProgress;
  /** Opens. */
  readonly waiters: Set<Waiter>;
  /** Prefetches. */
  readonly backers: Set<Backer>;
  /** An open has asked for it. */
  isWanted: boolean;
  /** It runs for prefetches alone, and evicts nothing that they want. */
  isSparing: boolean;
}

interface Waiter {
  readonly landed: () => void;
  readonly failed: (error: TmaxError) => void;
}

/** A prefetch that waits for a flight. */
interface Backer extends Waiter {
  /** Blobs that must not be evicted for it. */
  readonly keep: ReadonlySet<string>;
}

export interface FlightsOptions {
  /** How long an open waits for its blob; the fetch itself goes on. */
  readonly openTimeoutMs: number;
  /** Fetches at one time; further ones queue. */
  readonly maxFetches: number;
}

export interface FlightStatistics {
  readonly fetched: number;
  readonly fetchedBytes: number;
  readonly failed: number;
  readonly flights: readonly FetchInFlight[];
  readonly lastFailures: readonly FailedFetch[];
}

export class Flights {
  readonly #environment: FetchEnvironment;
  readonly #options: FlightsOptions;
  readonly #queue: FetchQueue;
  readonly #flights = new Map<string, Flight>();
  readonly #outcomes: FetchOutcomes;
  readonly #stopping = new AbortController();

  constructor(environment: FetchEnvironment, options: FlightsOptions) {
    this.#environment = environment;
    this.#options = options;
    this.#outcomes = new FetchOutcomes(environment.log);
    this.#queue = new FetchQueue(options.maxFetches);
    // Every fetch listens to it, in several places.
    setMaxListeners(0, this.#stopping.signal);
  }

  has(sha256: string): boolean {
    return this.#flights.has(sha256);
  }

  get isEmpty(): boolean {
    return this.#flights.size === 0;
  }

  state(sha256: string): BlobState | undefined {
    const flight = this.#flights.get(sha256);
    if (flight === undefined) return undefined;
    const { phase, receivedBytes } = flight.progress;
    return { state: phase, receivedBytes, waiters: flight.waiters.size };
  }

  /** Errno and words of the last fetch, where that failed. */
  failure(sha256: string): string | undefined {
    return this.#outcomes.failure(sha256);
  }

  statistics(): FlightStatistics {
    return {
      ...this.#outcomes.statistics(),
      flights: [...this.#flights.values()].map(({ address, label, startedAtMs, progress, waiters }) => {
        return { address, label, startedAtMs, ...progress, waiters: waiters.size };
      }),
    };
  }

  /** How many there are in each phase. */
  phases(): Record<FetchPhase, number> {
    const phases = { queued: 0, fetching: 0, verifying: 0, publishing: 0 };
    for (const { progress } of this.#flights.values()) phases[progress.phase] += 1;
    return phases;
  }

  /**
   * An open waits for the one fetch of this blob, its caller's end, or the end of its patience, whichever comes first.
   * `landed` is called in the turn in which the blob becomes ready, and gives the result.
   * Errors: ETIMEDOUT; EINTR aborted; those of the fetch and of `landed`.
   */
  wait<Result>(
    address: BlobAddress,
    label: OpenLabel,
    signal: AbortSignal,
    landed: () => Result | Promise<Result>,
  ): Promise<Result> {
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
              resolve(landed());
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
      // The room that it waits for may be there, for an open.
      if (flight.isSparing && flight.progress.phase === 'queued' && !signal.aborted) this.#queue.restart(flight);
    });
  }

  /**
   * A prefetch waits for the one fetch of this blob, behind every fetch that an open waits for, or for its own end.
   * `keep`: blobs that are not evicted for this one. Errors: EINTR aborted; those of the fetch.
   */
  async back(address: BlobAddress, label: OpenLabel, signal: AbortSignal, keep: ReadonlySet<string>): Promise<void> {
    const known = this.#flights.get(address.sha256);
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
      const backer: Backer = {
        keep,
        landed: () => settle(resolve),
        failed: (error) => settle(() => reject(error)),
      };
      flight.backers.add(backer);
      signal.addEventListener('abort', onAbort, { once: true });
      if (known === undefined) this.#queue.add(flight);
    });
  }

  /** Ends every fetch; what is on disk of them stays for a resume. */
  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#queue.idle();
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
      waitingSinceMs: undefined,
    };
    const flight: Flight = {
      address,
      label,
      startedAtMs: Date.now(),
      progress,
      waiters: new Set(),
      backers: new Set(),
      isWanted: false,
      isSparing: false,
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
    flight.isSparing = keep.size > 0;
    try {
      const stop = AbortSignal.any([this.#stopping.signal, signal]);
      const result = await fetchBlob(this.#environment, address, progress, stop, keep);
      if ('lookAfterMs' in result) {
        if (stop.aborted || !isStillWanted(flight)) throw interrupted(address);
        // Without a place in the queue meanwhile.
        progress.phase = 'queued';
        return { kind: 'later', afterMs: result.lookAfterMs };
      }
      this.#flights.delete(address.sha256);
      this.#landed(flight, result);
    } catch (thrown) {
      const isCalledOff = signal.aborted && isStillWanted(flight);
      // An open that has joined since needs no blob to be kept for a prefetch.
      const mayEvictMore = isFull(thrown) && keep.size > 0 && waiters.size > 0;
      if ((isCalledOff || mayEvictMore) && !this.#stopping.signal.aborted) {
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

  #landed(flight: Flight, result: FetchResult): void {
    const { sha256, sizeBytes } = flight.address;
    const { capacity, isHeld } = this.#environment;
    if (!isHeld(sha256)) capacity.idle(sha256, sizeBytes);
    for (const waiter of [...flight.waiters, ...flight.backers]) waiter.landed();
    this.#outcomes.succeeded(flight, result);
  }

  #failed(flight: Flight, error: TmaxError): void {
    this.#outcomes.failed(flight, error);
    for (const waiter of [...flight.waiters, ...flight.backers]) waiter.failed(error);
  }
}

function isStillWanted({ isWanted, backers }: Flight): boolean {
  return isWanted || backers.size > 0;
}
