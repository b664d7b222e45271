/**
 * What the cache takes of its disk, over all daemons on its directory: blobs, partial files, what is reserved for fetches, and
 * blobs that are deleted and still open.
 *
 * Bytes only ever move from a reservation to a partial file to a blob (to the blobs that lie aside), and each is looked at in
 * that order: what moves meanwhile is met at least once, and counted once, by its sha256. Reservations are made under the one lock
 * alone. So for whoever holds it a look never counts too little.
 */

import { diskError } from '../disk-error.js';
import { BlobIndex, type IndexChanges } from './blob-index.js';
import type { BlobStore, RetiredBlob } from './blob-store.js';
import { type ForeignReservation, type Reservation, Reservations } from './reservations.js';

interface OwnReservation {
  readonly sizeBytes: number;
  /** Undefined where the disk had no room for it: then only this process knows. */
  readonly reservation: Reservation | undefined;
  writtenBytes: number;
}

/** A file that may be removed, by whoever holds the lock. */
export interface Leftover {
  readonly name: string;
  readonly sizeBytes: number;
  /** False where somebody holds it. Errors: those of the disk. */
  remove(): Promise<boolean>;
}

/** Room that is asked for. */
export interface RoomRequest {
  readonly sha256: string;
  readonly sizeBytes: number;
}

export class CacheUsage {
  /** The blobs, those of all processes. */
  readonly blobs: BlobIndex;
  readonly #store: BlobStore;
  readonly #reservations: Reservations;
  readonly #own = new Map<string, OwnReservation>();
  readonly #ownDeleted = new Map<string, OwnReservation>();
  #others: readonly ForeignReservation[] = [];
  #partials = new Map<string, number>();
  #retired: readonly RetiredBlob[] = [];

  constructor(store: BlobStore) {
    this.#store = store;
    this.blobs = new BlobIndex(store.layout);
    this.#reservations = new Reservations(store);
  }

  /** Runs `act` while no other daemon counts or reserves. Errors: as `Reservations.exclusively`. */
  async exclusively<Result>(signal: AbortSignal, act: () => Promise<Result>): Promise<Result> {
    return await this.#reservations.exclusively(signal, act);
  }

  /** Looks at the disk; only within `exclusively`. Errors: those of the disk. */
  async look(): Promise<IndexChanges> {
    this.#others = await this.#reservations.ofOthers();
    const partials = await this.#store.partials.scan();
    this.#partials = new Map(partials.map(({ sha256, sizeBytes }) => [sha256, sizeBytes]));
    const changes = await this.blobs.look();
    this.#retired = await this.#store.scanRetired();
    return changes;
  }

  /** Only within `exclusively`, once `usedBytes` and `unwrittenBytes` with the very request are within the limits. */
  reserve({ sha256, sizeBytes }: RoomRequest): void {
    const writtenBytes = this.#partials.get(sha256) ?? 0;
    const reservation = this.#reservations.make('fetch', sha256, sizeBytes);
    this.#own.set(sha256, { sizeBytes, reservation, writtenBytes });
  }

  /** How much of a reserved blob is on disk by now. */
  written(sha256: string, writtenBytes: number): void {
    const own = this.#own.get(sha256);
    if (own !== undefined) own.writtenBytes = writtenBytes;
  }

  /** The end of a fetch, which has left so much in its partial file. */
  release(sha256: string, partialBytes: number): void {
    const own = this.#own.get(sha256);
    if (own === undefined) return;
    if (partialBytes > 0) this.#partials.set(sha256, partialBytes);
    else this.#partials.delete(sha256);
    this.#own.delete(sha256);
    own.reservation?.release();
  }

  /** A blob that this process holds open has been deleted: told to all. Only within `exclusively`. */
  holdDeleted(sha256: string, sizeBytes: number): void {
    if (this.#ownDeleted.get(sha256)?.reservation !== undefined) return;
    let reservation: Reservation | undefined;
    try {
      reservation = this.#reservations.make('deleted', sha256, sizeBytes);
    } catch (error) {
      // Room is to be made on a full disk all the same.
      if (diskError(error, '').errno !== 'ENOSPC') throw error;
    }
    this.#ownDeleted.set(sha256, { sizeBytes, reservation, writtenBytes: sizeBytes });
  }

  /** It is closed. */
  closeDeleted(sha256: string): void {
    this.#ownDeleted.get(sha256)?.reservation?.release();
    this.#ownDeleted.delete(sha256);
  }

  /** Bytes of this process's fetches. */
  get reservedBytes(): number {
    return sum([...this.#own.values()].map(({ sizeBytes }) => sizeBytes));
  }

  /** Bytes of all fetches but of these blobs. */
  reservedBesides(blobs: ReadonlyMap<string, unknown>): number {
    return sum([...this.#fetches()].filter(([sha256]) => !blobs.has(sha256)).map(([, sizeBytes]) => sizeBytes));
  }

  get isFetching(): boolean {
    return this.#own.size > 0 || this.isFetchingElsewhere;
  }

  get isFetchingElsewhere(): boolean {
    return this.#others.some(({ kind }) => kind === 'fetch');
  }

  /** All bytes of the cache, with those of fetches under way, and of one more, at their full size. */
  usedBytes(request?: RoomRequest): number {
    const fetches = this.#fetches(request);
    let total = this.blobs.totalBytes + sum(this.#retired.map(({ sizeBytes }) => sizeBytes));
    for (const [sha256, sizeBytes] of fetches) {
      if (!this.blobs.has(sha256)) total += Math.max(sizeBytes, this.#partials.get(sha256) ?? 0);
    }
    for (const [sha256, bytes] of this.#partials) if (!fetches.has(sha256)) total += bytes;
    const deleted = this.#others.filter(({ kind }) => kind === 'deleted');
    return total + sum([...this.#ownDeleted.values(), ...deleted].map(({ sizeBytes }) => sizeBytes));
  }

  /** What fetches under way, and one more, will still write. */
  unwrittenBytes(request?: RoomRequest): number {
    let total = 0;
    for (const [sha256, sizeBytes] of this.#fetches(request)) {
      const writtenBytes = this.#own.get(sha256)?.writtenBytes ?? this.#partials.get(sha256) ?? 0;
      total += Math.max(0, sizeBytes - writtenBytes);
    }
    return total;
  }

  /** Bytes of partial files that no fetch is filling. */
  get abandonedBytes(): number {
    const fetches = this.#fetches();
    return sum([...this.#partials].filter(([sha256]) => !fetches.has(sha256)).map(([, bytes]) => bytes));
  }

  /** Files that are of no use to any fetch but to that of `request`: blobs that lie aside, and partial files that nobody fills. */
  leftovers(request?: RoomRequest): Leftover[] {
    const retired = this.#retired.map(({ name, sizeBytes }) => {
      const remove = async () => {
        const isGone = await this.#store.removeRetired(name);
        if (isGone) this.#retired = this.#retired.filter((other) => other.name !== name);
        return isGone;
      };
      return { name, sizeBytes, remove };
    });
    const fetches = this.#fetches(request);
    const unfilled = [...this.#partials].filter(([sha256]) => !fetches.has(sha256));
    const partials = unfilled.map(([sha256, sizeBytes]) => {
      const remove = async () => {
        const isGone = await this.#store.partials.remove(sha256);
        if (isGone) this.#partials.delete(sha256);
        return isGone;
      };
      return { name: sha256, sizeBytes, remove };
    });
    return [...retired, ...partials];
  }

  /** Sizes by sha256, each blob once, whoever fetches it. */
  #fetches(request?: RoomRequest): Map<string, number> {
    const others = this.#others.filter(({ kind }) => kind === 'fetch');
    const sizes = new Map(others.map(({ sha256, sizeBytes }) => [sha256, sizeBytes]));
    for (const [sha256, { sizeBytes }] of this.#own) sizes.set(sha256, sizeBytes);
    if (request !== undefined) sizes.set(request.sha256, request.sizeBytes);
    return sizes;
  }
}

function sum(sizes: Iterable<number>): number {
  let total = 0;
  for (const size of sizes) total += size;
  return total;
}
