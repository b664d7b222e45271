/**
 * The files that the kernel holds open, and how their bytes reach it.
 *
 * A handle *is* a descriptor number: a duplicate of the cache file's descriptor, so that the reading threads can serve
 * READ from the number alone. The duplicates lie high, out of the way of all other descriptors of the process.
 *
 * The kernel's rule for passthrough: while an inode has an open file, all its opens are passed through with one and the
 * same backing id, or all are relayed. So the first open of an inode decides for those that come while it lasts.
 *
 * What the kernel has cached of a relayed file stays valid over its closes, but not once the cache has put another file in
 * its place (a blob that was found damaged, and fetched anew).
 */

import { LRUCache } from 'lru-cache';
import type { InodeNumber, OpenFile } from '../../filesystem/contract.js';

/** What this needs to know of file descriptors. */
export interface Descriptors {
  /** A duplicate with a high number. Throws what fcntl(2) throws. */
  duplicate(descriptor: number): number;
  /** Which file it is, whatever its name. Throws what fstat(2) throws. */
  identity(descriptor: number): string;
  close(descriptor: number): void;
}

/** The kernel's side of passthrough. */
export interface Backing {
  /** A backing id for the file behind a descriptor, or undefined where the kernel refuses: then reads are relayed. */
  open(descriptor: number): number | undefined;
  close(backingId: number): void;
}

export interface OpenedFile {
  readonly handle: number;
  /** Undefined if reads are relayed. */
  readonly backingId: number | undefined;
  /** Whether what the kernel has cached of the inode, from reads that were relayed, is of the file that is open now. */
  readonly isCacheValid: boolean;
}

/** Inodes whose last relayed file is remembered; of one that is not, the kernel reads anew what it had cached. */
const MAX_REMEMBERED_INODES = 65_536;

interface OpenInode {
  readonly backingId: number | undefined;
  openCount: number;
}

interface Handle {
  readonly inode: InodeNumber;
  readonly file: OpenFile;
}

export class OpenFiles {
  readonly #handles = new Map<number, Handle>();
  readonly #inodes = new Map<InodeNumber, OpenInode>();
  readonly #relayed = new LRUCache<InodeNumber, string>({ max: MAX_REMEMBERED_INODES });
  readonly #descriptors: Descriptors;
  readonly #backing: Backing;

  constructor(descriptors: Descriptors, backing: Backing) {
    this.#descriptors = descriptors;
    this.#backing = backing;
  }

  get handleCount(): number {
    return this.#handles.size;
  }

  get backingIdCount(): number {
    let count = 0;
    for (const { backingId } of this.#inodes.values()) if (backingId !== undefined) count += 1;
    return count;
  }

  /** Takes over `file` until `release`. If it throws (no descriptor left), `file` is still the caller's. */
  add(inode: InodeNumber, file: OpenFile): OpenedFile {
    const handle = this.#descriptors.duplicate(file.descriptor);
    const open = this.#inodes.get(inode) ?? { backingId: this.#backing.open(handle), openCount: 0 };
    const { backingId } = open;
    const isCacheValid = backingId === undefined && this.#wasRelayedLast(inode, handle);
    open.openCount += 1;
    this.#inodes.set(inode, open);
    this.#handles.set(handle, { inode, file });
    return { handle, backingId, isCacheValid };
  }

  #wasRelayedLast(inode: InodeNumber, descriptor: number): boolean {
    const identity = this.#descriptors.identity(descriptor);
    const isSame = this.#relayed.get(inode) === identity;
    if (!isSame) this.#relayed.set(inode, identity);
    return isSame;
  }

  /** The kernel has closed the file. An unknown handle is no error: it may be one of a process before this one. */
  release(handle: number): void {
    const entry = this.#handles.get(handle);
    if (entry === undefined) return;
    this.#handles.delete(handle);
    this.#leave(entry.inode);
    this.#descriptors.close(handle);
    entry.file.close();
  }

  /** The connection is over: nothing reads any more. */
  releaseAll(): void {
    for (const handle of [...this.#handles.keys()]) this.release(handle);
  }

  #leave(inode: InodeNumber): void {
    const open = this.#inodes.get(inode);
    if (open === undefined) return;
    open.openCount -= 1;
    if (open.openCount > 0) return;
    this.#inodes.delete(inode);
    if (open.backingId !== undefined) this.#backing.close(open.backingId);
  }
}
