/**
 * Who takes how much of the cache, and who goes first when room is needed.
 *
 * The limits hold over all daemons on one directory, each obeying its own: what counts is looked at and reserved under one lock
 * (cache-usage.ts). A blob of whichever daemon is `idle` here (in order of last use, may be evicted unless it is pinned) unless it is
 * `leased` through this process; one that is leased by another is found out by its lock. Partial files without a fetch are the
 * first to go.
 *
 * Room is made by one caller at a time: `reserve` calls queue up. Who finds none waits for as long as running fetches may
 * still give some up, then `leasePatienceMs` for a lease to end.
 */

import { LRUCache } from 'lru-cache';
import { counted } from '../counted.js';
import { diskError } from '../disk-error.js';
import { TmaxError } from '../errors.js';
import type { IndexChanges } from './blob-index.js';
import type { BlobStore } from './blob-store.js';
import { removeForeign } from './cache-folder.js';
import { CacheUsage, type RoomRequest } from './cache-usage.js';
import { RoomChanges } from './room-changes.js';

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
  /** Of all daemons, as of the last look. */
  readonly usedBytes: number;
  readonly idleBlobs: number;
  /** By this daemon, as are `reservedBytes`. */
  readonly leasedBlobs: number;
  readonly reservedBytes: number;
}

interface IdleBlob {
  readonly sizeBytes: number;
  /** Last use that is known of. */
  readonly usedAtMs: number;
}

interface LeasedBlob {
  readonly sizeBytes: number;
  /** Whether the file has lost its name. */
  readonly isDeleted: () => boolean;
}

/** How often it is looked at what other daemons did, while blobs are leased, or somebody asks. */
const LOOK_INTERVAL_MS = 5000;
/** The last use is written down right after it is noted here: what is later than this is somebody else's. */
const NOTED_WITHIN_MS = 1000;
const NEVER = new AbortController().signal;

export class Capacity {
  readonly #store: BlobStore;
  readonly #limits: CapacityLimits;
  readonly #onEvict: (sha256: string, sizeBytes: number) => void;
  readonly #usage: CacheUsage;
  // No bound of its own: the cache below it must not drop an entry whose file could not be removed.
  readonly #idle = new LRUCache<string, IdleBlob>({
    max: 0,
    maxSize: Number.MAX_SAFE_INTEGER,
    sizeCalculation: () => 1,
  });
  readonly #leased = new Map<string, LeasedBlob>();
  readonly #changes = new RoomChanges();
  readonly #timer: NodeJS.Timeout;
  #making: Promise<void> = Promise.resolve();
  /** Whether the last search for room came across blobs that other daemons hold. */
  #isHeldElsewhere = false;
  #isAsked = false;

  constructor(store: BlobStore, limits: CapacityLimits, onEvict: (sha256: string, sizeBytes: number) => void) {
    this.#store = store;
    this.#limits = limits;
    this.#onEvict = onEvict;
    this.#usage = new CacheUsage(store);
    this.#timer = setInterval(() => this.#lookIfOfUse(), LOOK_INTERVAL_MS).unref();
  }

  /**
   * Finds what is on disk, and removes what has no business there. A disk that can't be written is looked at, no more.
   * Errors: those of the disk.
   */
  async load(isWritable: boolean): Promise<void> {
    if (!isWritable) {
      // Nobody else reserves there either.
      this.#apply(await this.#usage.look());
      return;
    }
    await this.#inTurn(NEVER, async () => {
      for (const path of await this.#look()) await removeForeign(this.#store.layout, path);
    });
  }

  /** Resolves once nothing is looked at any more: what is leased may be closed by whatever means then. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#making;
  }

  /** A blob that is on disk and held by nobody here: most recently used from now on. */
  idle(sha256: string, sizeBytes: number): void {
    const leased = this.#leased.get(sha256);
    this.#leased.delete(sha256);
    this.#usage.closeDeleted(sha256);
    if (leased?.isDeleted() !== true) {
      this.#usage.blobs.add(sha256, sizeBytes);
      this.#idle.set(sha256, { sizeBytes, usedAtMs: Date.now() });
    }
    this.#changes.tell();
  }

  /** A blob that has just been renamed into its place, and is not idle yet. */
  published(sha256: string, sizeBytes: number): void {
    this.#usage.blobs.add(sha256, sizeBytes);
  }

  /** `isDeleted`: whether the file that is held open has lost its name since. */
  lease(sha256: string, sizeBytes: number, isDeleted: () => boolean): void {
    this.#idle.delete(sha256);
    if (!this.#usage.blobs.has(sha256)) this.#usage.blobs.add(sha256, sizeBytes);
    this.#leased.set(sha256, { sizeBytes, isDeleted });
  }

  /** A blob that turned out not to be on disk, or was removed. */
  forget(sha256: string): void {
    if (!this.#usage.blobs.has(sha256)) return;
    this.#usage.blobs.remove(sha256);
    this.#idle.delete(sha256);
    this.#changes.tell();
  }

  /** Whether the blob is known to be on disk. */
  has(sha256: string): boolean {
    return this.#usage.blobs.has(sha256) || this.#leased.has(sha256);
  }

  /** A fetch has ended, and left so much in its partial file. */
  abandon(sha256: string, partialBytes: number): void {
    this.#usage.release(sha256, partialBytes);
    this.#changes.tell();
  }

  /**
   * Counts `sizeBytes` for a blob that is about to be fetched, evicting idle ones until that fits, but none of `keep`.
   * Errors: ENOSPC with the numbers, at once where even an empty cache is not enough, else when waiting has not helped;
   * those of the disk; the signal's reason.
   */
  async reserve(
    sha256: string,
    sizeBytes: number,
    signal: AbortSignal,
    keep: ReadonlySet<string> = new Set(),
  ): Promise<void> {
    const request = { sha256, sizeBytes };
    if (sizeBytes > this.#limits.limitBytes) throw await this.#full(request, keep);
    const patience = this.#changes.patience(this.#limits.leasePatienceMs);
    for (;;) {
      signal.throwIfAborted();
      const before = this.#changes.count;
      const full = await this.#inTurn(signal, () => this.#makeRoom(request, keep));
      if (full === undefined) return;
      // What changed while room was looked for has told nobody yet.
      if (this.#changes.count !== before) continue;
      const isGone = !(await patience.wait(signal, {
        fetches: this.#usage.isFetching,
        leases: this.#leased.size > 0 || this.#isHeldElsewhere,
        elsewhere: this.#usage.isFetchingElsewhere || this.#isHeldElsewhere,
      }));
      if (isGone) throw full;
    }
  }

  /**
   * Whether all these blobs (size by sha256) can be on disk at one time, if everything that is not held open goes for them.
   * Errors: ENOSPC with the numbers; those of the disk.
   */
  async checkFits(sizes: ReadonlyMap<string, number>): Promise<void> {
    await this.#inTurn(NEVER, () => this.#look());
    const beside = (blobs: Iterable<[string, { readonly sizeBytes: number }]>) =>
      sum([...blobs].filter(([sha256]) => !sizes.has(sha256)).map(([, { sizeBytes }]) => sizeBytes));
    const wantedBytes = sum(sizes.values());
    const pinnedBytes = beside(await this.#pinned());
    const heldBytes = pinnedBytes + beside(this.#leased) + this.#usage.reservedBesides(sizes);
    const { limitBytes, reserveFreeBytes } = this.#limits;
    const limitRoomBytes = limitBytes - heldBytes;
    const present = [...sizes].filter(([sha256]) => this.has(sha256)).map(([, sizeBytes]) => sizeBytes);
    const evictableBytes = beside(this.#idle.entries()) - pinnedBytes + this.#usage.abandonedBytes;
    const diskRoomBytes = (await this.#availableBytes()) + sum(present) + evictableBytes;
    if (wantedBytes <= Math.min(limitRoomBytes, diskRoomBytes)) return;
    throw new TmaxError(
      'ENOSPC',
      `no room for ${counted(sizes.size, 'image')} of ${wantedBytes} bytes in all: the cache may hold ${limitBytes} bytes, of which ${heldBytes} ` +
        `are pinned, held open or being fetched for others; its disk could hold ${Math.max(0, diskRoomBytes)} of them above the ` +
        `${reserveFreeBytes} bytes kept free; choose fewer, raise --cache-size or lower --reserve-free`,
      { source: 'cache' },
    );
  }

  /**
   * Evicts what lies above the limits, as after a start with smaller ones, and until the disk has `freeBytes` to give. What
   * is held open stays. Errors: those of the disk.
   */
  async shrink(freeBytes = 0): Promise<void> {
    await this.#inTurn(NEVER, async () => {
      await this.#look();
      await this.#evictUntilFits(undefined, new Set(), freeBytes);
    });
  }

  /**
   * Evicts idle blobs, but none of `keep`, for a fetch that found the disk full: at least `missingBytes` of them, since a quota
   * does not show in what the disk says of itself, and until the disk has room for all running fetches.
   * Answers with what was evicted, and what the disk then has to give, both in bytes. Errors: those of the disk.
   */
  async relieve(
    missingBytes: number,
    keep: ReadonlySet<string>,
  ): Promise<{ readonly evictedBytes: number; readonly availableBytes: number }> {
    return await this.#inTurn(NEVER, async () => {
      await this.#look();
      return await this.#relieve(missingBytes, keep);
    });
  }

  /** How much of a reserved blob is on disk by now. */
  written(sha256: string, writtenBytes: number): void {
    this.#usage.written(sha256, writtenBytes);
  }

  use(): CapacityUse {
    this.#isAsked = true;
    return {
      limitBytes: this.#limits.limitBytes,
      usedBytes: this.#usage.usedBytes(),
      idleBlobs: this.#idle.size,
      leasedBlobs: this.#leased.size,
      reservedBytes: this.#usage.reservedBytes,
    };
  }

  /** One at a time, in this process and over all. Errors: the signal's reason; those of the disk and of `act`, as TmaxError. */
  async #inTurn<Result>(signal: AbortSignal, act: () => Promise<Result>): Promise<Result> {
    const turn = this.#making.then(() => this.#usage.exclusively(signal, act));
    this.#making = turn.then(
      () => undefined,
      () => undefined,
    );
    try {
      return await turn;
    } catch (error) {
      throw signal.aborted ? error : diskError(error, 'room in the cache could not be counted');
    }
  }

  /** Only in turn. Paths of what has no business among the blobs. */
  async #look(): Promise<readonly string[]> {
    const changes = await this.#usage.look();
    this.#apply(changes);
    for (const [sha256, { sizeBytes, isDeleted }] of this.#leased) {
      if (changes.listed.has(sha256.slice(0, 2)) && isDeleted()) this.#usage.holdDeleted(sha256, sizeBytes);
    }
    return changes.strays;
  }

  #apply({ added, gone }: IndexChanges): void {
    for (const { sha256, sizeBytes, usedAtMs } of added) {
      if (!this.#leased.has(sha256) && !this.#idle.has(sha256)) this.#idle.set(sha256, { sizeBytes, usedAtMs });
    }
    for (const sha256 of gone) this.#idle.delete(sha256);
  }

  #lookIfOfUse(): void {
    if (this.#leased.size === 0 && !this.#isAsked) return;
    this.#isAsked = false;
    // A disk that can't be looked at is reported where something is read or written.
    this.#inTurn(NEVER, () => this.#look()).catch(() => undefined);
  }

  /** Undefined where the room is reserved, else the error to end in if nothing changes. Only in turn. */
  async #makeRoom(request: RoomRequest, keep: ReadonlySet<string>): Promise<TmaxError | undefined> {
    await this.#look();
    if (!(await this.#evictUntilFits(request, keep))) return await this.#full(request, keep);
    await this.#reserveOnDisk(request, keep);
    return undefined;
  }

  /** A disk, or a quota on it, may have nothing left even for the file that tells of it. Only in turn. */
  async #reserveOnDisk(request: RoomRequest, keep: ReadonlySet<string>): Promise<void> {
    try {
      this.#usage.reserve(request);
    } catch (thrown) {
      const error = diskError(thrown, 'no room could be reserved in the cache');
      const kept = new Set([...keep, request.sha256]);
      if (error.errno !== 'ENOSPC' || (await this.#relieve(1, kept)).evictedBytes === 0) throw error;
      this.#usage.reserve(request);
    }
  }

  /** As `relieve`. Only in turn. */
  async #relieve(missingBytes: number, keep: ReadonlySet<string>) {
    const passedOver = new Set(keep);
    const pinned = await this.#store.pins.list();
    for (let evictedBytes = 0; ; ) {
      const availableBytes = await this.#availableBytes();
      const isEnough = evictedBytes >= missingBytes && availableBytes >= 0;
      const freedBytes = isEnough ? undefined : await this.#removeOne(undefined, passedOver, pinned);
      if (freedBytes === undefined) return { evictedBytes, availableBytes };
      evictedBytes += freedBytes;
    }
  }

  /**
   * Evicts until what is used, and the request, fit both limits, and the disk has `freeBytes` to give beside; false where
   * nothing is left to evict. Only in turn.
   */
  async #evictUntilFits(request: RoomRequest | undefined, keep: ReadonlySet<string>, freeBytes = 0): Promise<boolean> {
    const passedOver = new Set(keep);
    let pinned: ReadonlySet<string> | undefined;
    this.#isHeldElsewhere = false;
    for (;;) {
      const isBelowLimit = this.#usage.usedBytes(request) <= this.#limits.limitBytes;
      if (isBelowLimit && (await this.#availableBytes(request)) >= freeBytes) return true;
      pinned ??= await this.#store.pins.list();
      if ((await this.#removeOne(request, passedOver, pinned)) === undefined) return false;
    }
  }

  /** What may still be written to the disk: free, less the reserve, less what fetches will write, that of `request` too. */
  async #availableBytes(request?: RoomRequest): Promise<number> {
    const { availableBytes } = await this.#store.disk();
    return availableBytes - this.#limits.reserveFreeBytes - this.#usage.unwrittenBytes(request);
  }

  /**
   * Removes one file that is of no use, or else the least recently used blob that nobody holds, and answers with the bytes that
   * gives back: none where the file has another name; undefined where there is none. Errors: those of the disk, where that is why nothing could be removed.
   */
  async #removeOne(
    request: RoomRequest | undefined,
    passedOver: Set<string>,
    pinned: ReadonlySet<string>,
  ): Promise<number | undefined> {
    const failures: unknown[] = [];
    for (const { name, sizeBytes, remove } of this.#usage.leftovers(request)) {
      if (passedOver.has(name)) continue;
      if (await orFalse(remove(), failures)) return sizeBytes;
      passedOver.add(name);
    }
    for (;;) {
      // Looked up anew each time: what was idle before a wait may be leased, or gone, after it.
      const sha256 = this.#leastRecentlyUsed(passedOver, pinned);
      if (sha256 === undefined) break;
      const { sizeBytes, usedAtMs } = this.#idle.peek(sha256) ?? { sizeBytes: 0, usedAtMs: 0 };
      const removal = await orFalse(this.#store.evictUnused(sha256, usedAtMs + NOTED_WITHIN_MS), failures);
      if (removal !== false && removal.kind === 'removed') {
        this.forget(sha256);
        this.#onEvict(sha256, sizeBytes);
        return removal.freesRoom ? sizeBytes : 0;
      }
      if (removal === false || removal.kind !== 'used') passedOver.add(sha256);
      if (removal === false || removal.kind === 'kept') continue;
      if (removal.kind === 'held') this.#isHeldElsewhere = true;
      // Another daemon uses it, or has: its turn comes after all that is known to be idle.
      const lastUsedAtMs = removal.kind === 'used' ? removal.usedAtMs : Date.now();
      if (this.#idle.has(sha256)) this.#idle.set(sha256, { sizeBytes, usedAtMs: lastUsedAtMs });
    }
    if (failures.length > 0) throw diskError(failures[0], 'no room could be made in the cache');
    return undefined;
  }

  #leastRecentlyUsed(...except: readonly ReadonlySet<string>[]): string | undefined {
    for (const sha256 of this.#idle.rkeys()) if (!except.some((set) => set.has(sha256))) return sha256;
    return undefined;
  }

  /** Pinned blobs that nobody holds open through this process. */
  async #pinned(): Promise<[string, IdleBlob][]> {
    const pinned = await this.#store.pins.list();
    return [...this.#idle.entries()].filter(([sha256]) => pinned.has(sha256));
  }

  async #full({ sha256, sizeBytes }: RoomRequest, keep: ReadonlySet<string>): Promise<TmaxError> {
    const availableBytes = await this.#availableBytes();
    const { limitBytes, reserveFreeBytes } = this.#limits;
    const pinned = new Map(await this.#pinned());
    const kept = [...this.#idle.entries()].filter(([idle]) => keep.has(idle) && !pinned.has(idle));
    const leasedBytes = bytesOf(this.#leased.values());
    const pinnedBytes = bytesOf(pinned.values());
    const keptBytes = bytesOf(kept.map(([, blob]) => blob));
    const fetchedBytes = this.#usage.reservedBesides(new Map());
    const overLimit = leasedBytes + fetchedBytes + pinnedBytes + keptBytes + sizeBytes > limitBytes;
    const elsewhere = this.#isHeldElsewhere ? ', and others by other daemons' : '';
    const together = keptBytes > 0 ? `, and ${keptBytes} are wanted by the same prefetch` : '';
    const remedies = [
      overLimit || this.#isHeldElsewhere
        ? 'raise --cache-size, or end sandboxes'
        : 'free some of the disk, or lower --reserve-free',
    ];
    if (keptBytes > 0) remedies.push('prefetch fewer at one time');
    if (pinnedBytes > 0) remedies.push('unpin some (tmaxfs unpin)');
    return new TmaxError(
      'ENOSPC',
      `no room for blob ${sha256.slice(0, 12)} of ${sizeBytes} bytes: the cache may hold ${limitBytes} bytes, of which ` +
        `${leasedBytes} are held open${elsewhere}, ${fetchedBytes} are being fetched and ${pinnedBytes} are pinned${together}; ` +
        `the disk has ${Math.max(0, availableBytes)} bytes to give above the ${reserveFreeBytes} kept free; ${remedies.join(', or ')}`,
      { source: 'cache' },
    );
  }
}

/** False where it fails, too: what can't be removed must not keep the rest from being. */
async function orFalse<Result>(act: Promise<Result>, failures: unknown[]): Promise<Result | false> {
  try {
    return await act;
  } catch (error) {
    failures.push(error);
    return false;
  }
}

function bytesOf(blobs: Iterable<{ readonly sizeBytes: number }>): number {
  return sum([...blobs].map(({ sizeBytes }) => sizeBytes));
}

function sum(sizes: Iterable<number>): number {
  let total = 0;
  for (const size of sizes) total += size;
  return total;
}
