/**
 * Locks for file systems that have none, made of lease files (locks/lease-folder.ts).
 *
 * What is weaker than with the kernel's locks: an owner that was stopped for longer than `STALE_MS` is taken for dead, and so
 * is one that was killed while the kernel goes on serving its files. Their blobs may be evicted, which open files on a
 * local disk survive, and on a network file system may not.
 */

import { closeSync, fstatSync } from 'node:fs';
import { relative } from 'node:path';
import { LeaseFolder } from '../locks/lease-folder.js';
import { openReadOnly } from '../read-only-file.js';
import { isStrange } from '../small-file.js';
import { makeCacheFolderNow } from './cache-folder.js';
import type { CacheLayout } from './cache-layout.js';
import type { FileLocks, LockMode } from './file-locks.js';

export class LeaseFiles implements FileLocks {
  readonly isKernel = false;
  readonly #layout: CacheLayout;
  readonly #leases: LeaseFolder;
  readonly #held = new Map<number, string>();

  /** Touches nothing until something is locked. */
  constructor(layout: CacheLayout) {
    this.#layout = layout;
    this.#leases = new LeaseFolder(layout.locks, (path) => makeCacheFolderNow(layout, path));
  }

  get partialSuffix(): string {
    return `.${this.#leases.owner}`;
  }

  tryLock(descriptor: number, path: string, mode: LockMode): boolean {
    // Other machines may know the directory by another path.
    const subject = relative(this.#layout.root, path);
    const file = this.#leases.tryTake(subject, mode, this.#held.get(descriptor));
    if (file === undefined) return false;
    this.#held.set(descriptor, file);
    return true;
  }

  unlock(descriptor: number): void {
    const file = this.#held.get(descriptor);
    this.#held.delete(descriptor);
    try {
      if (file !== undefined) this.#leases.giveBack(file);
    } catch {
      // A disk that fails must not keep the descriptor open, which is closed next.
    }
  }

  /** Opened anew, which asks a network file system's server. */
  stillNames(path: string, inode: number): boolean {
    let descriptor: number;
    try {
      descriptor = openReadOnly(path);
    } catch (error) {
      if (isStrange(error)) return false;
      throw error;
    }
    try {
      return fstatSync(descriptor).ino === inode;
    } finally {
      closeSync(descriptor);
    }
  }
}
