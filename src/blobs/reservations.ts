/**
 * Room that is promised and not yet used, over all processes on one cache directory.
 *
 * A reservation is an empty file whose name says for what and how much, locked by its process for as long as it counts. One
 * without a lock is what a killed process left: it is removed by whoever comes across it. All reservations are made, and
 * counted to be added to, under one exclusive lock, so that no two processes count on the same bytes; they are given back
 * without it.
 */

import { randomBytes } from 'node:crypto';
import { closeSync, constants, fchmodSync, openSync, unlinkSync } from 'node:fs';
import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay, setImmediate } from 'node:timers/promises';
import { systemErrorCode, TmaxError } from '../errors.js';
import { openReadOnly } from '../read-only-file.js';
import { isForbidden, isStrange, readSmallFile, removeStray } from '../small-file.js';
import { removeIfLeft } from '../temporary-file.js';
import type { BlobStore } from './blob-store.js';
import { makeCacheFolders } from './cache-folder.js';

/**
 * `fetch`: for a blob that is being fetched, at its full size; all who want the same blob mean the same bytes. `deleted`: a
 * blob that has been removed and is still held open, so that its bytes are on the disk and in no folder.
 */
export type ReservationKind = 'fetch' | 'deleted';

/** A reservation as another process sees it. */
export interface ForeignReservation {
  readonly kind: ReservationKind;
  readonly sha256: string;
  readonly sizeBytes: number;
}

/** One of ours. */
export interface Reservation {
  /** Gives the room back. To be called once. */
  release(): void;
}

const NAME = /^(fetch|deleted)\.([0-9a-f]{64})\.(\d{1,15})\.[0-9a-f]{16}$/;
const LOCK_NAME = 'lock';
/** The lock is held for milliseconds, or while blobs are evicted. */
const MAX_LOCK_WAIT_MS = 120_000;
const MIN_LOCK_POLL_MS = 1;
const MAX_LOCK_POLL_MS = 50;
/** Each is opened and locked, synchronously: so many, and other things have their turn. */
const CHECKS_PER_TURN = 32;

export class Reservations {
  readonly #store: BlobStore;
  readonly #own = new Set<string>();

  constructor(store: BlobStore) {
    this.#store = store;
  }

  /**
   * Runs `act` while no other process makes reservations. One at a time within this process: the caller sees to that.
   * Errors: the signal's reason; EIO another process has held the lock for two minutes; those of the disk and of `act`.
   */
  async exclusively<Result>(signal: AbortSignal, act: () => Promise<Result>): Promise<Result> {
    const handle = await this.#lock(signal);
    try {
      return await act();
    } finally {
      this.#store.locks.unlock(handle.fd);
      await handle.close();
    }
  }

  /** Makes one; only within `exclusively`. Errors: those of the disk. */
  make(kind: ReservationKind, sha256: string, sizeBytes: number): Reservation {
    const name = `${kind}.${sha256}.${sizeBytes}.${randomBytes(8).toString('hex')}`;
    const path = join(this.#store.layout.reservations, name);
    const descriptor = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
    const { sharing } = this.#store.layout;
    if (sharing !== undefined) fchmodSync(descriptor, sharing.writableMode);
    this.#own.add(name);
    const release = () => {
      this.#own.delete(name);
      try {
        unlinkSync(path);
      } catch {
        // Without its lock it counts no more, and the next who comes across it removes it.
      }
      this.#store.locks.unlock(descriptor);
      closeSync(descriptor);
    };
    if (!this.#store.locks.tryLock(descriptor, path, 'exclusive')) {
      release();
      throw new TmaxError('EIO', `the new reservation ${path} is locked by another process`, { source: 'cache' });
    }
    return { release };
  }

  /** Those of all other processes that are alive; only within `exclusively`. What dead ones left is removed. */
  async ofOthers(): Promise<ForeignReservation[]> {
    const found: ForeignReservation[] = [];
    const names = await readdir(this.#store.layout.reservations);
    for (const [index, name] of names.entries()) {
      const parts = NAME.exec(name);
      if (parts === null || this.#own.has(name)) continue;
      if (index % CHECKS_PER_TURN === 0) await setImmediate();
      const path = join(this.#store.layout.reservations, name);
      if (this.#isHeld(path)) {
        const kind = parts[1] === 'fetch' ? 'fetch' : 'deleted';
        found.push({ kind, sha256: parts[2] ?? '', sizeBytes: Number(parts[3]) });
      } else {
        await removeStray(path);
      }
    }
    return found;
  }

  #isHeld(path: string): boolean {
    let descriptor: number;
    try {
      descriptor = openReadOnly(path);
    } catch (error) {
      if (isStrange(error)) return false;
      // Killed before it was the group's: its user, and root, will remove it.
      if (isForbidden(error)) return true;
      throw error;
    }
    try {
      return !this.#store.locks.tryLock(descriptor, path, 'shared');
    } finally {
      this.#store.locks.unlock(descriptor);
      closeSync(descriptor);
    }
  }

  async #lock(signal: AbortSignal): Promise<FileHandle> {
    const path = join(this.#store.layout.reservations, LOCK_NAME);
    const startedMs = performance.now();
    for (let pollMs = MIN_LOCK_POLL_MS; ; pollMs = Math.min(2 * pollMs, MAX_LOCK_POLL_MS)) {
      const handle = await this.#tryLock(path);
      if (handle !== undefined) return handle;
      signal.throwIfAborted();
      if (performance.now() - startedMs > MAX_LOCK_WAIT_MS) throw heldTooLong(path);
      // Not in step with others who wait.
      await delay(pollMs * (0.5 + Math.random()), undefined, { signal });
    }
  }

  async #tryLock(path: string): Promise<FileHandle | undefined> {
    const handle = await this.#openLock(path);
    if (handle === undefined) return undefined;
    try {
      const stats = await handle.stat();
      // By a second name it is somebody's file, which is not ours to sign.
      if (!stats.isFile() || stats.nlink > 1) await removeStray(path);
      else {
        await this.#store.layout.sharing?.admit(handle, stats);
        if (this.#store.locks.tryLock(handle.fd, path, 'exclusive') && (await inodeOf(path)) === stats.ino) {
          // For people; a full disk, of all things, must not keep room from being made.
          await sign(handle).catch(() => undefined);
          return handle;
        }
      }
    } catch (error) {
      this.#store.locks.unlock(handle.fd);
      await handle.close();
      throw error;
    }
    this.#store.locks.unlock(handle.fd);
    await handle.close();
    return undefined;
  }

  /** Undefined where it is another user's, who is just making it. Errors: those of the disk. */
  async #openLock(path: string): Promise<FileHandle | undefined> {
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    try {
      return await open(path, flags, 0o600);
    } catch (error) {
      if (this.#store.layout.sharing !== undefined && isForbidden(error)) {
        // Killed at that, they would keep it from all others for ever.
        await removeIfLeft(path);
        return undefined;
      }
      if (systemErrorCode(error) !== 'ENOENT') throw error;
      await makeCacheFolders(this.#store.layout);
      return await open(path, flags, 0o600);
    }
  }
}

/** Says who has the lock. */
async function sign(handle: FileHandle): Promise<void> {
  await handle.truncate(0);
  await handle.write(`pid ${process.pid} on ${hostname()}`, 0);
}

async function inodeOf(path: string): Promise<number | undefined> {
  try {
    return (await lstat(path)).ino;
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function heldTooLong(path: string): TmaxError {
  const holder = readSmallFile(path) ?? '';
  const who = /^pid \d+ on [\w.-]+$/.test(holder) ? `tmaxfs, ${holder},` : 'another process';
  const seconds = MAX_LOCK_WAIT_MS / 1000;
  return new TmaxError(
    'EIO',
    `${who} has kept ${path} locked for ${seconds} s; look whether it is stopped, or end it`,
    {
      source: 'cache',
      level: 'error',
    },
  );
}
