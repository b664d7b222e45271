/**
 * Who holds ready blobs open, through this process.
 *
 * Ownership: a `LeasedBlob` owns its descriptor (and so its lock) while its count is above zero; `Capacity` is told of each
 * change. Nothing here waits: an open of a ready blob is answered in its own turn.
 */

import { fstatSync } from 'node:fs';
import type { Logger } from 'pino';
import { messageOf } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { ArchitectureGate } from './architecture-gate.js';
import type { BlobStore, OpenBlob } from './blob-store.js';
import type { Capacity } from './capacity.js';
import type { Proof } from './proof.js';
import type { ProvenBlobs } from './proven-blobs.js';
import type { Quarantine } from './quarantine.js';

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

export interface LeasesOptions {
  readonly store: BlobStore;
  readonly capacity: Capacity;
  readonly proven: ProvenBlobs;
  readonly gate: ArchitectureGate;
  readonly quarantine: Quarantine;
  readonly log: Logger;
}

/** Last use is written to disk at most this often per blob: it only orders eviction after a restart. */
const TOUCH_INTERVAL_MS = 60_000;

export class Leases {
  readonly #options: LeasesOptions;
  readonly #leased = new Map<string, LeasedBlob>();
  readonly #touchedAtMs = new Map<string, number>();
  /** What follows from releases, and nobody waits for. */
  readonly #aftermath = new Set<Promise<void>>();

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  has(sha256: string): boolean {
    return this.#leased.has(sha256);
  }

  /**
   * Leases a blob that is on disk and proven; undefined where it is not.
   * Errors: EBADMSG it is for another machine, and that is not to be served.
   */
  take(address: BlobAddress): Lease | undefined {
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
    const isDeleted = () => fstatSync(first.descriptor).nlink === 0;
    this.#options.capacity.lease(sha256, first.sizeBytes, isDeleted);
    return this.#lease(sha256, first);
  }

  /** Whether a blob could be leased now, looked up on the disk. Errors: as `take`. */
  isReady(address: BlobAddress): boolean {
    if (this.#leased.has(address.sha256)) return true;
    const opened = this.#openProven(address);
    if (opened === undefined) return false;
    this.#options.store.closeBlob(opened);
    return true;
  }

  /** The blob is gone. */
  forget(sha256: string): void {
    this.#touchedAtMs.delete(sha256);
  }

  /** Resolves once every last use is written down. Leases stay valid. */
  async close(): Promise<void> {
    await Promise.all(this.#aftermath);
  }

  #openProven(address: BlobAddress): OpenBlob | undefined {
    const { sha256 } = address;
    const { store, capacity, proven } = this.#options;
    const opened = store.openBlob(sha256);
    if (opened === undefined) {
      capacity.forget(sha256);
      proven.forget(sha256);
      return undefined;
    }
    let proof: Proof | undefined;
    try {
      proof = this.#provenAndServed(address, opened);
    } finally {
      if (proof === undefined) store.closeBlob(opened);
    }
    return proof === undefined ? undefined : opened;
  }

  #provenAndServed(
    { sha256, sizeBytes, path }: BlobAddress,
    file: { readonly sizeBytes: number; readonly modifiedSeconds: number },
  ): Proof | undefined {
    const { proven, gate } = this.#options;
    const proof = file.sizeBytes === sizeBytes ? proven.proofOf({ sha256, ...file }) : undefined;
    if (proof !== undefined) gate.admit(proof, path);
    return proof;
  }

  #lease(sha256: string, leased: LeasedBlob): Lease {
    const { store, capacity, quarantine } = this.#options;
    let released = false;
    return {
      descriptor: leased.descriptor,
      release: () => {
        if (released) return;
        released = true;
        leased.count -= 1;
        if (leased.count > 0) return;
        this.#leased.delete(sha256);
        capacity.idle(sha256, leased.sizeBytes);
        store.closeBlob(leased);
        this.#touch(sha256);
        this.#shrinkIfAboveLimit();
        // Nothing keeps it from being fetched anew any more.
        if (quarantine.get(sha256)?.cause === 'disk') void quarantine.remove(sha256);
      },
    };
  }

  #touch(sha256: string): void {
    const { store, log } = this.#options;
    const now = Date.now();
    if (now - (this.#touchedAtMs.get(sha256) ?? 0) < TOUCH_INTERVAL_MS) return;
    this.#touchedAtMs.set(sha256, now);
    const touch = store.touch(sha256).catch((error: unknown) => {
      log.debug({ blob: sha256, reason: messageOf(error) }, 'the last use of a blob could not be written down');
    });
    this.#follow(touch);
  }

  /** It may have been held while it lost its pin, or by a daemon with a larger limit. */
  #shrinkIfAboveLimit(): void {
    const { capacity, log } = this.#options;
    const { usedBytes, limitBytes } = capacity.use();
    if (usedBytes <= limitBytes) return;
    const shrunk = capacity.shrink().catch((error: unknown) => {
      log.warn({ reason: messageOf(error) }, 'the cache holds more than it may, and can’t be made smaller');
    });
    this.#follow(shrunk);
  }

  #follow(work: Promise<void>): void {
    this.#aftermath.add(work);
    void work.finally(() => this.#aftermath.delete(work));
  }
}
