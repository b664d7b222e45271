/**
 * Who uses a file of the cache, over all processes that share the directory: a shared lock keeps a blob from being evicted,
 * an exclusive one says who fetches, who removes, and who reserves room. Nobody ever waits for one.
 *
 * Where the file system has flock(2) that is all there is to it: the kernel frees the locks of whoever dies, and keeps those of
 * a file that it still serves itself (passthrough) for as long as it does. Elsewhere see lease-files.ts.
 */

import { flock } from '../libc.js';

export type LockMode = 'shared' | 'exclusive';

export interface FileLocks {
  /** Whether they are the kernel's own. */
  readonly isKernel: boolean;
  /**
   * Closes the name of a partial file. Empty where a writer that has lost its lock is dead for certain, and another may go on
   * with its file; else each owner has files of its own.
   */
  readonly partialSuffix: string;
  /**
   * Locks what `path` stands for, in the name of an open descriptor; false where that is held by another in a way that excludes
   * it. A descriptor that is locked already changes its lock. Synchronous: leases wait on it. Errors: those of the file system.
   */
  tryLock(descriptor: number, path: string, mode: LockMode): boolean;
  /** Gives back what was locked in the name of this descriptor. To be called right before it is closed. */
  unlock(descriptor: number): void;
  /** Whether a file with links that was opened, and then locked, still has this very name. */
  stillNames(path: string, inode: number): boolean;
}

/**
 * Locks of the kernel. They hang on the open file, and so outlive its descriptor where a copy is left: in a child process, from
 * its fork until it runs its program. What is closed would seem held by nobody knows whom meanwhile, hence `unlock`.
 */
export class KernelLocks implements FileLocks {
  readonly isKernel = true;
  readonly partialSuffix = '';

  tryLock(descriptor: number, _path: string, mode: LockMode): boolean {
    return flock(descriptor, mode === 'shared' ? 'sharedNonBlocking' : 'exclusiveNonBlocking');
  }

  unlock(descriptor: number): void {
    try {
      flock(descriptor, 'unlock');
    } catch {
      // Then it is the closing of the descriptor, which follows, that gives it back.
    }
  }

  /** Removing it takes an exclusive lock: its count of links says it all. */
  stillNames(): boolean {
    return true;
  }
}
