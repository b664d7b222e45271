/**
 * Who takes how much of the cache, and who goes first when room is needed.
 *
 * A blob is in exactly one of three places: `idle` (in order of last use, may be evicted unless it is pinned), `leased` (held open, may not), or
 * `reserved` (being fetched, counted at its full size from before the first byte). Partial files without a fetch count too
 * and are the first to go. What this process does not know of (blobs of another daemon on the same directory) is seen
 * through the free space of the disk.
 *
 * Room is made by one caller at a time: `reserve` calls queue up, so two fetches can't both count on the same bytes. Who finds
 * none waits for as long as running fetches may still give some up, then `leasePatienceMs` for a lease to end.
 */

import { LRUCache } from 'lru-cache';
import { diskError } from '../disk-error.js';
import { TmaxError } from '../errors.js';
import type { BlobStore } from './blob-store.js';

export interface CapacityLimits {
  /** All blobs and partial files together stay at or below this. */
  readonly limitBytes: number;
  /** What the cache leaves free on its disk, bytes. */
  readonly reserveFreeBytes: number;
  /** How long a fetch waits for one of the open blobs to be closed before it is told that there is no room. */
  readonly leasePatienceMs: number;
}

export interface CapacityUse {
  readonly limitBytes: number;
  readonly usedBytes: number;
  readonly idleBlobs: number;
  readonly leasedBlobs: number;
  readonly reservedBytes: number;
}

export class Capacity {
  readonly #store: BlobStore;
  readonly #limits: CapacityLimits;
  readonly #onEvict: (sha256: string, sizeBytes: number) => void;
  // No bound of its own: the cache below it must not drop an entry whose file could not be removed.
  readonly #idle = new LRUCache<string, number>({
    maxSize: Number.MAX_SAFE_INTEGER,
    sizeCalculation: (sizeBytes) => Math.max(1, sizeBytes),
  });
  readonly #leased = new Map<string, number>();
  readonly #reserved = new Map<string, { readonly sizeBytes: number; readonly writtenBytes: number }>();
  readonly #partials = new Map<string, number>();
  /** Fetches that wait for room, and how often something has changed that may have made some. */
  readonly #waiting = new Set<() => void>();
  #changes = 0;
  #making: Promise<void> = Promise.resolve();

  constructor(store: BlobStore, limits: CapacityLimits, onEvict: (sha256: string, sizeBytes: number) => void) {
    this.#store = store;
    this.#limits = limits;
    this.#onEvict = onEvict;
  }

  /** A blob that is on disk and held by nobody here: most recently used from now on. */
  idle(sha256: string, sizeBytes: number): void {
    this.#leased.delete(sha256);
    this.#reserved.delete(sha256);
    this.#idle.set(sha256, sizeBytes);
    this.#tellWaiting();
  }

  lease(sha256: string, sizeBytes: number): void {
    this.#idle.delete(sha256);
    this.#reserved.delete(sha256);
    this.#leased.set(sha256, sizeBytes);
  }

  /** A blob that turned out not to be on disk, or was removed. */
  forget(sha256: string): void {
    this.#idle.delete(sha256);
    this.#leased.delete(sha256);
    this.#tellWaiting();
  }

  /** Whether the blob is known to be on disk. */
  has(sha256: string): boolean {
    return this.#idle.has(sha256) || this.#leased.has(sha256);
  }

  /** A partial file that no fetch is filling. */
  abandon(sha256: string, partialBytes: number): void {
    this.#reserved.delete(sha256);
    if (partialBytes > 0) this.#partials.set(sha256, partialBytes);
    this.#tellWaiting();
  }

  /**
   * Counts `sizeBytes` for a blob that is about to be fetched, evicting idle ones until that fits, but none of `keep`.
   * Errors: ENOSPC with the numbers, at once where even an empty cache is not enough, else when waiting has not helped;
   * the signal's reason.
   */
  async reserve(
    sha256: string,
    sizeBytes: number,
    signal: AbortSignal,
    keep: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      const changesBefore = this.#changes;
      const turn = this.#making.then(() => this.#makeRoom(sha256, sizeBytes, keep));
      this.#making = turn.then(
        () => undefined,
        () => undefined,
      );
      const full = await turn;
      if (full === undefined) return;
      // What changed while room was looked for has told nobody yet.
      if (this.#changes === changesBefore && !(await this.#somethingChanges(signal))) throw full;
    }
  }

  /** False where nothing is being fetched, and no open blob is closed within the patience for that. */
  #somethingChanges(signal: AbortSignal): Promise<boolean> {
    if (this.#reserved.size === 0 && this.#leased.size === 0) return Promise.resolve(false);
    return new Promise((resolve) => {
      const settle = (changed: boolean) => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onChange);
        this.#waiting.delete(onChange);
        resolve(changed);
      };
      const onChange = () => settle(true);
      // A running fetch ends by itself, within its own bounds.
      const timer = this.#reserved.size > 0 ? undefined : setTimeout(() => settle(false), this.#limits.leasePatienceMs);
      this.#waiting.add(onChange);
      signal.addEventListener('abort', onChange, { once: true });
    });
  }

  #tellWaiting(): void {
    this.#changes += 1;
    for (const tell of [...this.#waiting]) tell();
  }

  /**
   * Whether all these blobs (size by sha256) can be on disk at one time, if everything that is not held open goes for them.
   * Errors: ENOSPC with the numbers.
   */
  async checkFits(sizes: ReadonlyMap<string, number>): Promise<void> {
    const beside = (blobs: Iterable<[string, number]>) =>
      sum([...blobs].filter(([sha256]) => !sizes.has(sha256)).map(([, sizeBytes]) => sizeBytes));
    const wantedBytes = sum(sizes.values());
    const pinnedBytes = beside(await this.#pinned());
    const heldBytes =
      pinnedBytes + beside(this.#leased) + beside([...this.#reserved].map(([key, { sizeBytes }]) => [key, sizeBytes]));
    const { limitBytes, reserveFreeBytes } = this.#limits;
    const limitRoomBytes = limitBytes - heldBytes;
    const present = [...sizes].filter(([sha256]) => this.has(sha256)).map(([, sizeBytes]) => sizeBytes);
    const evictableBytes = beside(this.#idle.entries()) - pinnedBytes + sum(this.#partials.values());
    const diskRoomBytes = (await this.#availableBytes()) + sum(present) + evictableBytes;
    if (wantedBytes <= Math.min(limitRoomBytes, diskRoomBytes)) return;
    throw new TmaxError(
      'ENOSPC',
      `${sizes.size} images of ${wantedBytes} bytes in all do not fit: the cache may hold ${limitBytes} bytes, of which ${heldBytes} ` +
        `are pinned, held open or being fetched for others; its disk could hold ${Math.max(0, diskRoomBytes)} of them above the ` +
        `${reserveFreeBytes} bytes kept free; choose fewer, raise --cache-size or lower --reserve-free`,
      { source: 'cache' },
    );
  }

  /**
   * Evicts what lies above the limits, as after a start with smaller ones, and until the disk has `freeBytes` to give. What
   * is held open stays.
   */
  async shrink(freeBytes = 0): Promise<void> {
    const turn = this.#making.then(() => this.#evictUntilFits(freeBytes, 0, new Set()));
    this.#making = turn.then(
      () => undefined,
      () => undefined,
    );
    await turn;
  }

  /**
   * Evicts idle blobs, but none of `keep`, for a fetch that found the disk full: at least `missingBytes` of them, since a quota
   * does not show in what the disk says of itself, and until the disk has room for all running fetches.
   * Answers with what was evicted, and what the disk then has to give, both in bytes.
   */
  async relieve(
    missingBytes: number,
    keep: ReadonlySet<string>,
  ): Promise<{ readonly evictedBytes: number; readonly availableBytes: number }> {
    const passedOver = new Set(keep);
    const relief = async () => {
      const pinned = await this.#store.pins.list();
      for (let evictedBytes = 0; ; ) {
        const availableBytes = await this.#availableBytes();
        const isEnough = evictedBytes >= missingBytes && availableBytes >= 0;
        const freedBytes = isEnough ? undefined : await this.#evictOne(passedOver, pinned);
        if (freedBytes === undefined) return { evictedBytes, availableBytes };
        evictedBytes += freedBytes;
      }
    };
    const turn = this.#making.then(relief);
    this.#making = turn.then(
      () => undefined,
      () => undefined,
    );
    return await turn;
  }

  /** How much of a reserved blob is on disk by now. */
  written(sha256: string, writtenBytes: number): void {
    const reservation = this.#reserved.get(sha256);
    if (reservation !== undefined) this.#reserved.set(sha256, { ...reservation, writtenBytes });
  }

  use(): CapacityUse {
    return {
      limitBytes: this.#limits.limitBytes,
      usedBytes: this.#usedBytes(),
      idleBlobs: this.#idle.size,
      leasedBlobs: this.#leased.size,
      reservedBytes: this.#reservedBytes(),
    };
  }

  #usedBytes(): number {
    const elsewhere = sum(this.#leased.values()) + this.#reservedBytes() + sum(this.#partials.values());
    return this.#idle.calculatedSize + elsewhere;
  }

  /** Undefined where the room is reserved, else the error to end in if nothing changes. Errors: ENOSPC it can never fit. */
  async #makeRoom(sha256: string, sizeBytes: number, keep: ReadonlySet<string>): Promise<TmaxError | undefined> {
    if (sizeBytes > this.#limits.limitBytes) throw await this.#full(sha256, sizeBytes);
    // What an earlier try left of this very blob will be filled up, not added to.
    const resumed = this.#partials.get(sha256) ?? 0;
    this.#partials.delete(sha256);
    let fits = false;
    try {
      fits = await this.#evictUntilFits(sizeBytes, resumed, keep);
    } finally {
      if (fits) this.#reserved.set(sha256, { sizeBytes, writtenBytes: resumed });
      else if (resumed > 0) this.#partials.set(sha256, resumed);
    }
    return fits ? undefined : await this.#full(sha256, sizeBytes);
  }

  /** Evicts until `sizeBytes`, of which `onDiskBytes` are there already, fit both limits; false where nothing is left to evict. */
  async #evictUntilFits(sizeBytes: number, onDiskBytes: number, keep: ReadonlySet<string>): Promise<boolean> {
    const passedOver = new Set(keep);
    let pinned: ReadonlySet<string> | undefined;
    for (;;) {
      const overLimitBytes = this.#usedBytes() + sizeBytes - this.#limits.limitBytes;
      if (overLimitBytes <= 0 && sizeBytes - onDiskBytes <= (await this.#availableBytes())) return true;
      pinned ??= await this.#store.pins.list();
      if ((await this.#evictOne(passedOver, pinned)) === undefined) return false;
    }
  }

  /** What may still be written to the disk by this cache: free, less the reserve, less what running fetches will write. */
  async #availableBytes(): Promise<number> {
    const { availableBytes } = await this.#store.disk();
    let unwrittenBytes = 0;
    for (const { sizeBytes, writtenBytes } of this.#reserved.values())
      unwrittenBytes += Math.max(0, sizeBytes - writtenBytes);
    return availableBytes - this.#limits.reserveFreeBytes - unwrittenBytes;
  }

  #reservedBytes(): number {
    let total = 0;
    for (const { sizeBytes } of this.#reserved.values()) total += sizeBytes;
    return total;
  }

  /**
   * Removes one partial file or else the least recently used blob that nobody holds, and answers with its size in bytes;
   * undefined where there is none. Errors: those of the disk, where that is why nothing could be removed.
   */
  async #evictOne(passedOver: Set<string>, pinned: ReadonlySet<string>): Promise<number | undefined> {
    const failures: unknown[] = [];
    // What can't be removed must not keep the rest from being.
    const isRemoved = async (sha256: string, remove: () => Promise<boolean>): Promise<boolean> => {
      const removed = await remove().catch((error: unknown) => {
        failures.push(error);
        return false;
      });
      if (!removed) passedOver.add(sha256);
      return removed;
    };
    for (const [sha256, sizeBytes] of [...this.#partials]) {
      if (passedOver.has(sha256)) continue;
      if (!(await isRemoved(sha256, () => this.#store.removePartial(sha256)))) continue;
      this.#partials.delete(sha256);
      return sizeBytes;
    }
    for (;;) {
      // Looked up anew each time: what was idle before a wait may be leased, or gone, after it.
      const sha256 = this.#leastRecentlyUsed(passedOver, pinned);
      if (sha256 === undefined) break;
      const sizeBytes = this.#idle.peek(sha256) ?? 0;
      if (!(await isRemoved(sha256, () => this.#store.evict(sha256)))) continue;
      this.forget(sha256);
      this.#onEvict(sha256, sizeBytes);
      return sizeBytes;
    }
    // A pin keeps nothing that another process has removed before.
    for (const [sha256, sizeBytes] of [...this.#idle.entries()]) {
      if (!pinned.has(sha256) || this.#store.isThere(sha256)) continue;
      this.forget(sha256);
      return sizeBytes;
    }
    if (failures.length > 0) throw diskError(failures[0], 'no room could be made in the cache');
    return undefined;
  }

  #leastRecentlyUsed(...except: readonly ReadonlySet<string>[]): string | undefined {
    for (const sha256 of this.#idle.rkeys()) if (!except.some((set) => set.has(sha256))) return sha256;
    return undefined;
  }

  /** Pinned blobs that nobody holds open, with their sizes. */
  async #pinned(): Promise<[string, number][]> {
    const pinned = await this.#store.pins.list();
    return [...this.#idle.entries()].filter(([sha256]) => pinned.has(sha256));
  }

  async #full(sha256: string, sizeBytes: number): Promise<TmaxError> {
    const availableBytes = await this.#availableBytes();
    const pinnedBytes = sum((await this.#pinned()).map(([, size]) => size));
    const { limitBytes, reserveFreeBytes } = this.#limits;
    const leasedBytes = sum(this.#leased.values());
    const overLimit = leasedBytes + this.#reservedBytes() + pinnedBytes + sizeBytes > limitBytes;
    const remedy = overLimit
      ? 'raise --cache-size, or end sandboxes'
      : 'free some of the disk, or lower --reserve-free';
    const unpin = pinnedBytes > 0 ? ', or unpin some (tmaxfs unpin)' : '';
    return new TmaxError(
      'ENOSPC',
      `no room for blob ${sha256.slice(0, 12)} of ${sizeBytes} bytes: the cache may hold ${limitBytes} bytes, of which ` +
        `${leasedBytes} are held open, ${this.#reservedBytes()} are being fetched and ${pinnedBytes} are pinned; the disk has ${Math.max(0, availableBytes)} ` +
        `bytes to give above the ${reserveFreeBytes} kept free; ${remedy}${unpin}`,
      { source: 'cache' },
    );
  }
}

function sum(sizes: Iterable<number>): number {
  let total = 0;
  for (const size of sizes) total += size;
  return total;
}
