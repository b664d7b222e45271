/**
 * Partial files: what fetches have brought so far, each written by whoever holds its exclusive lock, over all processes. A partial
 * file is a plain prefix of its blob, so that whoever finds it may go on from there.
 */

import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, type FileHandle, open, rm, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { diskError } from '../disk-error.js';
import { systemErrorCode } from '../errors.js';
import { isStrange, removeStray } from '../small-file.js';
import { removeIfLeft } from '../temporary-file.js';
import { makeCacheFolders, removeForeign } from './cache-folder.js';
import { blobOfPartial, type CacheLayout } from './cache-layout.js';
import { isOwn } from './cache-sharing.js';
import type { FileLocks } from './file-locks.js';
import { isSameFile, lstatIfThere, namesIn } from './file-lookup.js';

/** A partial file whose exclusive lock is ours. */
export interface LockedPartial {
  readonly path: string;
  readonly handle: FileHandle;
  /**
   * Where a source may put a hard link instead of bytes: named as a partial file of another owner, so that whoever has the lock next
   * removes one that was left, and nobody ever writes to it. Undefined where others could.
   */
  readonly linkPath: string | undefined;
}

/** As in the names of owners; see `blobOfPartial`. */
const OWNER_BYTES = 8;
/** A partial file's place is cleared this often: what keeps coming back is not to be cleared. */
const MAX_PARTIAL_ATTEMPTS = 3;

export class PartialFiles {
  readonly #layout: CacheLayout;
  readonly #locks: FileLocks;

  constructor(layout: CacheLayout, locks: FileLocks) {
    this.#layout = layout;
    this.#locks = locks;
  }

  /** Partial files and the bytes each takes; what is no partial file is removed. */
  async scan(): Promise<{ sha256: string; sizeBytes: number }[]> {
    const found = new Map<string, number>();
    for (const name of await namesIn(this.#layout.partials)) {
      const path = join(this.#layout.partials, name);
      const stats = await lstatIfThere(path);
      if (stats === undefined) continue;
      const sha256 = blobOfPartial(name);
      // Each owner may have a file of its own.
      if (stats.isFile() && sha256 !== undefined) found.set(sha256, (found.get(sha256) ?? 0) + stats.blocks * 512);
      else await removeForeign(this.#layout, path);
    }
    return [...found].map(([sha256, sizeBytes]) => ({ sha256, sizeBytes }));
  }

  /**
   * Opens or creates the partial file and takes its lock; undefined while another process has it. What lies in its place
   * and is no partial file of ours is removed first; so is what another user has left of a fetch, since only its owner could
   * make a blob of it.
   * Errors: those of the disk as TmaxError: ENOSPC; EIO with what is wrong with it.
   */
  async lock(sha256: string): Promise<LockedPartial | undefined> {
    const lockPath = this.#layout.partial(sha256);
    const path = `${lockPath}${this.#locks.partialSuffix}`;
    for (let attempt = 1; attempt <= MAX_PARTIAL_ATTEMPTS; attempt += 1) {
      const handle = await this.#open(path);
      if (handle === undefined) return undefined;
      let isLeft = false;
      try {
        const locked = this.#locks.tryLock(handle.fd, lockPath, 'exclusive');
        const stats = await handle.stat();
        if (locked && (await isSameFile(path, stats))) {
          isLeft = this.#layout.sharing !== undefined && !isOwn(stats.uid);
          if (!isLeft) {
            await this.#removeOthers(sha256, path);
            return { path, handle, linkPath: this.#linkPath(sha256) };
          }
          await unlink(path);
        }
      } catch (error) {
        await this.#unlock(handle);
        throw error;
      }
      await this.#unlock(handle);
      if (!isLeft) return undefined;
    }
    return undefined;
  }

  #linkPath(sha256: string): string | undefined {
    if (this.#layout.sharing !== undefined) return undefined;
    return `${this.#layout.partial(sha256)}.${randomBytes(OWNER_BYTES).toString('hex')}`;
  }

  /** Files of owners that have died, or have been silent for so long that they may write no more to what is published. */
  async #removeOthers(sha256: string, own: string): Promise<void> {
    for (const name of await namesIn(this.#layout.partials)) {
      const path = join(this.#layout.partials, name);
      if (blobOfPartial(name) === sha256 && path !== own) await removeStray(path);
    }
  }

  /** Whether there is a partial file of this blob, whoever's. */
  async has(sha256: string): Promise<boolean> {
    return (await namesIn(this.#layout.partials)).some((name) => blobOfPartial(name) === sha256);
  }

  async #unlock(handle: FileHandle): Promise<void> {
    this.#locks.unlock(handle.fd);
    await handle.close();
  }

  /** Undefined where it is another user's, and just being made or made a blob. */
  async #open(path: string): Promise<FileHandle | undefined> {
    const { sharing } = this.#layout;
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;
    for (let attempt = 1; ; attempt += 1) {
      try {
        const handle = await open(path, flags, 0o600);
        const stats = await handle.stat();
        // A second name would let the fetch write into somebody else's file.
        if (stats.isFile() && stats.nlink === 1) {
          await sharing?.admit(handle, stats);
          return handle;
        }
        await handle.close();
        await removeStray(path);
      } catch (error) {
        if (attempt >= MAX_PARTIAL_ATTEMPTS) throw diskError(error, `the partial file ${path} can't be opened`);
        if (sharing !== undefined && (await isAnothers(path, error))) {
          // Just being made, or made a blob. Who was killed at that would keep it for ever: what is old goes.
          await removeIfLeft(path);
          if (await isAnothers(path, error)) return undefined;
        } else await this.#mend(path, error);
      }
    }
  }

  /** Errors: `cause` itself where nothing can be mended. */
  async #mend(path: string, cause: unknown): Promise<void> {
    const code = systemErrorCode(cause);
    // Killed right before its rename, when it was as read-only as the blob that it was to become.
    const stats = code === 'EACCES' ? await lstatIfThere(path) : undefined;
    const isOurs = stats?.isFile() === true && isOwn(stats.uid);
    if (isOurs && stats.nlink === 1) await chmod(path, 0o600);
    else if (code === 'ENOENT') await makeCacheFolders(this.#layout);
    else if (!(isOurs || isStrange(cause)) || !(await removeStray(path))) {
      throw diskError(cause, `the partial file ${path} can't be opened`);
    }
  }

  /**
   * Lets what is in a partial file last, so that a later fetch may go on from it; or takes it away where the disk fails to
   * write it. The kernel tells of that once, and goes on to show from memory what the disk does not have: such bytes would
   * pass every check, and be lost. Errors: those of the disk, where the partial file was taken away.
   */
  async sync(partial: LockedPartial): Promise<void> {
    try {
      await partial.handle.sync();
    } catch (error) {
      await this.discard(partial);
      throw error;
    }
  }

  /** Takes away a partial file that is not to be gone on from, as far as the disk lets us. Its lock is still held. */
  async discard({ path, handle }: LockedPartial): Promise<void> {
    try {
      if (await isSameFile(path, await handle.stat())) await unlink(path);
    } catch {
      // The disk has failed already, which is what is being reported. It is read-only by now: mounting it anew forgets memory.
    }
  }

  /**
   * Gives the lock back. Answers with the bytes that the fetch has left in the partial file; none once it was published or
   * removed. Never fails, as after a failure of the disk: what was to last has been synced before.
   */
  async release({ path, handle, linkPath }: LockedPartial): Promise<number> {
    // A disk that fails must not keep the lock: nobody could ever fetch this blob again.
    const stats = await handle.stat().catch(() => undefined);
    if (linkPath !== undefined) await rm(linkPath, { force: true }).catch(() => undefined);
    const isThere = stats !== undefined && (await isSameFile(path, stats).catch(() => true));
    await this.#unlock(handle).catch(() => undefined);
    return isThere ? stats.blocks * 512 : 0;
  }

  /** Removes a partial file that nobody is writing. False where someone is. */
  async remove(sha256: string): Promise<boolean> {
    const partial = await this.lock(sha256);
    if (partial === undefined) return false;
    try {
      await rm(partial.path, { force: true });
      return true;
    } finally {
      await this.#unlock(partial.handle);
    }
  }
}

/** Whether a file could not be opened since it is another user's. Errors: those of the disk. */
async function isAnothers(path: string, cause: unknown): Promise<boolean> {
  const stats = systemErrorCode(cause) === 'EACCES' ? await lstatIfThere(path) : undefined;
  return stats !== undefined && !isOwn(stats.uid);
}
