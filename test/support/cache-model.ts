/**
 * What a cache is, in a hundred lines: which images are on disk, when each was last used, who holds it, what may never go.
 * Nothing happens at the same time, nothing fails, and time is a number. The real one must never disagree (cache-commands.ts).
 */

export interface ModelImage {
  readonly index: number;
  readonly sizeBytes: number;
}

/** What an open or a prefetch must lead to. */
export type Expected =
  | { readonly kind: 'ready' }
  /** Fetched, going on from `resumedBytes`. */
  | { readonly kind: 'fetched'; readonly resumedBytes: number }
  /** ENOSPC. What may go may have gone for it, in vain. */
  | { readonly kind: 'full' };

export class CacheModel {
  /** Images on disk, and when each became idle last, or was published. */
  readonly disk = new Map<number, number>();
  /** Images held open, and how often. */
  readonly leases = new Map<number, number>();
  readonly pinned = new Set<number>();
  /** Partial files, and their sizes. */
  readonly partials = new Map<number, number>();
  limitBytes: number;
  /** Seconds. */
  now = 0;
  readonly #images: readonly ModelImage[];

  constructor(images: readonly ModelImage[], limitBytes: number) {
    this.#images = images;
    this.limitBytes = limitBytes;
  }

  open(image: number): Expected {
    const expected = this.bring(image, new Set());
    if (expected.kind !== 'full') this.leases.set(image, (this.leases.get(image) ?? 0) + 1);
    return expected;
  }

  close(image: number): void {
    const left = (this.leases.get(image) ?? 0) - 1;
    if (left > 0) this.leases.set(image, left);
    else {
      this.leases.delete(image);
      this.disk.set(image, this.now);
      this.#makeRoom(0, new Set());
    }
  }

  bring(image: number, keep: ReadonlySet<number>): Expected {
    if (this.disk.has(image)) return { kind: 'ready' };
    const before = { disk: [...this.disk], partials: [...this.partials] };
    const resumedBytes = this.partials.get(image) ?? 0;
    this.partials.delete(image);
    if (this.#size(image) > this.limitBytes || !this.#makeRoom(this.#size(image), keep)) {
      // What the real one has let go in vain is for the comparison to see.
      restore(this.disk, before.disk);
      restore(this.partials, before.partials);
      return { kind: 'full' };
    }
    this.disk.set(image, this.now);
    return { kind: 'fetched', resumedBytes };
  }

  /** True where it went. */
  evict(image: number): boolean {
    return this.#mayGo(image) && this.disk.delete(image);
  }

  unpin(image: number): void {
    this.pinned.delete(image);
    this.#makeRoom(0, new Set());
  }

  /** The process is gone, and another one is there. `left`: an image of which it leaves the first bytes. */
  restart(limitBytes: number, left?: { readonly image: number; readonly bytes: number }): void {
    this.leases.clear();
    this.limitBytes = limitBytes;
    if (left !== undefined && !this.disk.has(left.image)) this.partials.set(left.image, left.bytes);
    this.#makeRoom(0, new Set());
  }

  get usedBytes(): number {
    return sum([...this.disk.keys()].map((image) => this.#size(image))) + sum(this.partials.values());
  }

  /** What no eviction may take. */
  get heldBytes(): number {
    return sum([...this.disk.keys()].filter((image) => !this.#mayGo(image)).map((image) => this.#size(image)));
  }

  /** Partial files go first, then what was used longest ago. */
  #makeRoom(sizeBytes: number, keep: ReadonlySet<number>): boolean {
    while (this.usedBytes + sizeBytes > this.limitBytes) {
      const partial = [...this.partials.keys()].find((image) => !keep.has(image));
      const oldest = [...this.disk]
        .sort(([, a], [, b]) => a - b)
        .find(([image]) => this.#mayGo(image) && !keep.has(image));
      if (partial !== undefined) this.partials.delete(partial);
      else if (oldest !== undefined) this.disk.delete(oldest[0]);
      else return false;
    }
    return true;
  }

  #mayGo(image: number): boolean {
    return this.disk.has(image) && !this.leases.has(image) && !this.pinned.has(image);
  }

  #size(image: number): number {
    return this.#images[image]?.sizeBytes ?? 0;
  }
}

function sum(numbers: Iterable<number>): number {
  let total = 0;
  for (const number of numbers) total += number;
  return total;
}

function restore<Key, Value>(map: Map<Key, Value>, entries: readonly (readonly [Key, Value])[]): void {
  map.clear();
  for (const [key, value] of entries) map.set(key, value);
}
