/**
 * The files that the kernel holds open, and how their bytes reach it.
 *
 * A handle *is* a descriptor number: a duplicate of the cache file's descriptor, so that the reading threads can serve
 * READ from the number alone. The duplicates lie high, out of the way of all other descriptors of the process.
 *
 * The kernel's rule for passthrough: while an inode has an open file, all its opens are passed through with one and the
 * same backing id, or all are relayed. So the first open of an inode decides for those that come while it lasts.
 */

import type { InodeNumber, OpenFile } from '../../filesystem/contract.js';

/** What this needs to know of file descriptors. */
export interface Descriptors {
  /** A duplicate with a high number. Throws what fcntl(2) throws. */
  duplicate(descriptor: number): number;
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
}

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
    open.openCount += 1;
    this.#inodes.set(inode, open);
    this.#handles.set(handle, { inode, file });
    return { handle, backingId: open.backingId };
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
