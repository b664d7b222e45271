/**
 * Locks for file systems that have none: a file for each, made before it is looked who else has one. Of two that exclude each other
 * at least the later one sees the other, so both may fail, and never both succeed. A file counts for as long as its owner
 * lives (heartbeat.ts), and is removed by whoever comes across it after that.
 *
 * What is weaker than with the kernel's locks: an owner that was stopped for longer than `STALE_MS` is taken for dead, and so
 * is one that was killed while the kernel goes on serving its files. Their blobs may be evicted, which open files on a
 * local disk survive, and on a network file system may not.
 */

import { createHash } from 'node:crypto';
import { closeSync, constants, fstatSync, mkdirSync, openSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { systemErrorCode } from '../errors.js';
import { openReadOnly } from '../read-only-file.js';
import type { CacheLayout } from './cache-layout.js';
import type { FileLocks, LockMode } from './file-locks.js';
import { Heartbeat } from './heartbeat.js';
import { isStrange } from './small-file.js';

/** `<digest of the path>.<mode>.<owner>.<number>`, in a folder named by the first two digits. */
const NAME = /^([0-9a-f]{32})\.(shared|exclusive)\.([0-9a-f]{16})\.\d+$/;

export class LeaseFiles implements FileLocks {
  readonly isKernel = false;
  readonly #layout: CacheLayout;
  readonly #heartbeat: Heartbeat;
  readonly #held = new Map<number, string>();
  #count = 0;

  /** Touches nothing until something is locked. */
  constructor(layout: CacheLayout) {
    this.#layout = layout;
    this.#heartbeat = new Heartbeat(layout.lockOwners);
  }

  get partialSuffix(): string {
    return `.${this.#heartbeat.id}`;
  }

  tryLock(descriptor: number, path: string, mode: LockMode): boolean {
    if (this.#count === 0) this.#heartbeat.start();
    this.#count += 1;
    // Other machines may know the directory by another path.
    const subject = relative(this.#layout.root, path);
    const key = createHash('sha256').update(subject).digest('hex').slice(0, 32);
    const file = join(this.#layout.locks, key.slice(0, 2), `${key}.${mode}.${this.#heartbeat.id}.${this.#count}`);
    const before = this.#held.get(descriptor);
    makeFile(file);
    if (this.#isExcluded(file, key, mode, before)) {
      rmSync(file, { force: true });
      return false;
    }
    if (before !== undefined) rmSync(before, { force: true });
    this.#held.set(descriptor, file);
    return true;
  }

  unlock(descriptor: number): void {
    const file = this.#held.get(descriptor);
    this.#held.delete(descriptor);
    if (file !== undefined) rmSync(file, { force: true });
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

  #isExcluded(own: string, key: string, mode: LockMode, before: string | undefined): boolean {
    const folder = dirname(own);
    return readdirSync(folder).some((name) => {
      const path = join(folder, name);
      const parts = NAME.exec(name);
      if (parts === null || parts[1] !== key || path === own || path === before) return false;
      if (mode === 'shared' && parts[2] === 'shared') return false;
      if (!this.#heartbeat.isStale(parts[3] ?? '')) return true;
      rmSync(path, { force: true });
      return false;
    });
  }
}

function makeFile(path: string): void {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
  try {
    closeSync(openSync(path, flags, 0o644));
  } catch (error) {
    if (systemErrorCode(error) !== 'ENOENT') throw error;
    mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
    closeSync(openSync(path, flags, 0o644));
  }
}
