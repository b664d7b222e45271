/**
 * The cache's limits on its very disk, and what `df` on the mount is told: kept in memory and looked up anew every few
 * seconds, so that no `df` ever waits for a disk.
 */

import type { BlobStore } from '../blobs/blob-store.js';
import type { CapacityLimits } from '../blobs/capacity.js';
import type { Space } from '../filesystem/pool-file-system.js';
import { bytesOf } from './amount.js';
import type { Settings } from './settings.js';

const REFRESH_INTERVAL_MS = 5000;
/** A sandbox that is about to end is waited for; a cache full of running ones is said to be full. */
const LEASE_PATIENCE_MS = 5000;

export class DiskSpace {
  readonly limits: CapacityLimits;
  readonly #store: BlobStore;
  readonly #timer: NodeJS.Timeout;
  #availableBytes: number;
  #usedBytes: () => number = () => 0;
  #isLooking = false;

  private constructor(store: BlobStore, limits: CapacityLimits, availableBytes: number) {
    this.#store = store;
    this.limits = limits;
    this.#availableBytes = availableBytes;
    this.#timer = setInterval(() => this.#look(), REFRESH_INTERVAL_MS).unref();
  }

  static async start(store: BlobStore, settings: Pick<Settings, 'cacheSize' | 'reserveFree'>): Promise<DiskSpace> {
    const { totalBytes, availableBytes } = await store.disk();
    const limits = {
      limitBytes: bytesOf(settings.cacheSize, totalBytes),
      reserveFreeBytes: bytesOf(settings.reserveFree, totalBytes),
      leasePatienceMs: LEASE_PATIENCE_MS,
    };
    return new DiskSpace(store, limits, availableBytes);
  }

  /** From where the bytes in the cache are known. */
  watch(usedBytes: () => number): void {
    this.#usedBytes = usedBytes;
  }

  /** As of some seconds ago. */
  get availableBytes(): number {
    return this.#availableBytes;
  }

  /** The cache as a disk: as large as it may become, as free as it may still grow. */
  now(): Space {
    const usedBytes = this.#usedBytes();
    const growthBytes = Math.min(
      this.limits.limitBytes - usedBytes,
      this.#availableBytes - this.limits.reserveFreeBytes,
    );
    const freeBytes = Math.max(0, growthBytes);
    return { totalBytes: usedBytes + freeBytes, freeBytes };
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    // A disk that does not answer is asked once, not once more every few seconds.
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#store
      .disk()
      .then(({ availableBytes }) => {
        this.#availableBytes = availableBytes;
      })
      // The last figure stays: a failing cache disk is reported where something is read or written.
      .catch(() => undefined)
      .finally(() => {
        this.#isLooking = false;
      });
  }
}
