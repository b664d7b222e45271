/**
 * The blobs on disk: mechanism, no policy. Finds, opens under a shared lock, publishes and removes whole files.
 *
 * Invariants:
 * - A file below blobs/ appears by rename from partial/, after its content and before its folder entry were synced.
 * - Whoever reads a blob holds a shared lock on it (file-locks.ts), whoever removes it an exclusive one. A crash frees both.
 * - Whoever writes a partial file holds an exclusive lock on it, turned into a shared one before the rename, so that no
 *   other process can take the blob for idle in between.
 * - A file that somebody holds open keeps a name in the cache, so that its bytes are counted: a damaged one is moved aside.
 * - The modification time of a blob is a whole second, set once at publishing; its access time is when it was last used. A blob
 *   that is a hard link to a file of its source keeps that file's time and mode.
 */

import { randomBytes } from 'node:crypto';
import { closeSync, constants, fstatSync, type Stats } from 'node:fs';
import { access, type FileHandle, open, readdir, rename, stat, statfs, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { diskError } from '../disk-error.js';
import { messageOf, systemErrorCode, TmaxError } from '../errors.js';
import { enableVerity, setAccessTime } from '../libc.js';
import { openReadOnly } from '../read-only-file.js';
import { isStrange, renameOver } from '../small-file.js';
import { removeLeftTemporaries, syncFolder } from '../temporary-file.js';
import { makeCacheFolder, makeCacheFolders, refuseUnsafe, removeForeign } from './cache-folder.js';
import { CacheLayout, RETIRED_NAME, SHA256_NAME, TWO_HEX } from './cache-layout.js';
import { readSharing } from './cache-sharing.js';
import { chooseLocks, presentLocks } from './choose-locks.js';
import type { FileLocks } from './file-locks.js';
import { isSameFile, lstatIfThere, namesIn } from './file-lookup.js';
import { type LockedPartial, PartialFiles } from './partial-files.js';
import { Pins } from './pins.js';
import type { Proof } from './proof.js';
import { ProofFiles } from './proof-files.js';

export interface StoredBlob {
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly modifiedSeconds: number;
  /** When it was last leased, milliseconds since the epoch. */
  readonly usedAtMs: number;
}

export interface StoreOptions {
  /** The group of the directory fills it, reads from it and evicts too; if left out, nobody else is let in. */
  readonly isShared: boolean;
}

/** A blob held open under a shared lock. Its owner gives it back with `closeBlob`. */
export interface OpenBlob {
  readonly descriptor: number;
  readonly inode: number;
  readonly sizeBytes: number;
  readonly modifiedSeconds: number;
}

/** What became of a removal: of no use where the blob is held or kept by whoever, or was used later than was known. */
export type Removal =
  /** `freesRoom`: it was its file's last name. */
  | { readonly kind: 'removed'; readonly freesRoom: boolean }
  | { readonly kind: 'held' }
  | { readonly kind: 'kept' }
  | { readonly kind: 'used'; readonly usedAtMs: number };

/** A file that lies aside until it is closed everywhere. */
export interface RetiredBlob {
  readonly name: string;
  readonly sizeBytes: number;
}

const READ_WHAT_IS_THERE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const SHA256_DIGITS = 64;
/** A file system without fs-verity, or not with blocks of our size. */
const CANT_SEAL = new Set(['EOPNOTSUPP', 'ENOTSUP', 'ENOTTY', 'EINVAL', 'ENOSYS']);
export class BlobStore {
  readonly layout: CacheLayout;
  readonly locks: FileLocks;
  readonly partials: PartialFiles;
  readonly proofs: ProofFiles;
  readonly pins: Pins;

  private constructor(layout: CacheLayout, locks: FileLocks) {
    this.layout = layout;
    this.locks = locks;
    this.partials = new PartialFiles(layout, locks);
    this.proofs = new ProofFiles(layout);
    this.pins = new Pins(layout);
  }

  /**
   * Creates what is missing below `root`: an empty folder, or a cache of ours, known by its tag.
   * Errors: EACCES it can't be made or written; EEXIST a folder with other things in it; EPERM an unsafe folder; those of `readSharing`.
   */
  static async open(root: string, { isShared }: StoreOptions = { isShared: false }): Promise<BlobStore> {
    const layout = new CacheLayout(root, isShared ? await readSharing(root) : undefined);
    try {
      await makeCacheFolders(layout);
    } catch (cause) {
      if (cause instanceof TmaxError) throw cause;
      throw new TmaxError(
        'EACCES',
        `the cache directory ${root} can't be made or written (${messageOf(cause)}); name another with --cache-dir`,
        { cause, source: 'cache', level: 'error' },
      );
    }
    await refuseUnsafe(layout);
    return new BlobStore(layout, chooseLocks(layout));
  }

  /**
   * The blobs of a cache that is there already; touches nothing. Errors: ENOENT there is none; EPERM an unsafe folder; those of
   * `readSharing`.
   */
  static async existing(root: string, { isShared }: StoreOptions = { isShared: false }): Promise<BlobStore> {
    const layout = new CacheLayout(root, isShared ? await readSharing(root) : undefined);
    try {
      await stat(layout.blobs);
    } catch (cause) {
      throw new TmaxError('ENOENT', `there is no cache at ${root}; name the one that is meant with --cache-dir`, {
        cause,
        source: 'cache',
      });
    }
    await refuseUnsafe(layout);
    return new BlobStore(layout, presentLocks(layout));
  }

  /** Every blob and its size, oldest use first. Those that come or go meanwhile may be missed. */
  async list(): Promise<StoredBlob[]> {
    const found: StoredBlob[] = [];
    for await (const { name, stats } of this.#entries()) {
      if (name === undefined || stats === undefined) continue;
      found.push({
        sha256: name,
        sizeBytes: stats.size,
        modifiedSeconds: Math.floor(stats.mtimeMs / 1000),
        usedAtMs: stats.atimeMs,
      });
    }
    return found.sort((a, b) => a.usedAtMs - b.usedAtMs);
  }

  /** Removes what killed processes have left: temporaries, and proofs of blobs that are not there, as `isThere` says. */
  async removeLeft(isThere: (sha256: string) => boolean): Promise<void> {
    for (const folder of [this.layout.root, this.layout.reservations]) await removeLeftTemporaries(folder);
    await this.proofs.removeLeft(isThere);
  }

  /** All that lies below blobs/; `name` is the digest of a blob, and undefined for anything else. */
  async *#entries(): AsyncGenerator<{ path: string; name?: string; stats?: Stats }> {
    for (const shard of await readdir(this.layout.blobs, { withFileTypes: true })) {
      const folder = join(this.layout.blobs, shard.name);
      if (!shard.isDirectory() || !TWO_HEX.test(shard.name)) {
        yield { path: folder };
        continue;
      }
      for (const name of await readdir(folder)) {
        const path = join(folder, name);
        const stats = await lstatIfThere(path);
        if (stats === undefined) continue;
        const isBlob = stats.isFile() && SHA256_NAME.test(name) && name.startsWith(shard.name);
        yield isBlob ? { path, name, stats } : { path };
      }
    }
  }

  /** Opens a blob under a shared lock; undefined where it is absent or just being removed. Synchronous: opens wait on it. */
  openBlob(sha256: string): OpenBlob | undefined {
    let descriptor: number;
    try {
      descriptor = openReadOnly(this.layout.blob(sha256));
    } catch (error) {
      if (isStrange(error)) return undefined;
      throw error;
    }
    try {
      const { ino } = fstatSync(descriptor);
      const locked = this.locks.tryLock(descriptor, this.#lockPath(sha256, ino), 'shared');
      const stats = fstatSync(descriptor);
      // The lock may have been won only after the remover let go: then the file has no name left.
      const isThere = stats.isFile() && stats.nlink > 0;
      if (locked && isThere && this.locks.stillNames(this.layout.blob(sha256), ino)) {
        return {
          descriptor,
          inode: stats.ino,
          sizeBytes: stats.size,
          modifiedSeconds: Math.floor(stats.mtimeMs / 1000),
        };
      }
    } catch (error) {
      this.closeBlob({ descriptor });
      throw error;
    }
    this.closeBlob({ descriptor });
    return undefined;
  }

  /** Gives a blob back that was opened. Synchronous, as opening it is. */
  closeBlob({ descriptor }: Pick<OpenBlob, 'descriptor'>): void {
    this.locks.unlock(descriptor);
    closeSync(descriptor);
  }

  /** One file may be moved aside and another come in its place: who holds the one does not hold the other. */
  #lockPath(sha256: string, inode: number): string {
    return `${this.layout.blob(sha256)}:${inode}`;
  }

  /** Whether there is a blob, whoever brought it, that is not just being removed. */
  isThere(sha256: string): boolean {
    const opened = this.openBlob(sha256);
    if (opened !== undefined) this.closeBlob(opened);
    return opened !== undefined;
  }

  /**
   * Whether anybody, in whatever process, holds the blob open. The lock that tells is let go at once: who opens the blob in
   * that very moment goes the longer way of an open, and finds it there.
   */
  isHeld(sha256: string): boolean {
    let descriptor: number;
    try {
      descriptor = openReadOnly(this.layout.blob(sha256));
    } catch (error) {
      if (isStrange(error)) return false;
      throw error;
    }
    try {
      const lockPath = this.#lockPath(sha256, fstatSync(descriptor).ino);
      return !this.locks.tryLock(descriptor, lockPath, 'exclusive');
    } finally {
      this.closeBlob({ descriptor });
    }
  }

  /** Bytes of the blob on disk, whoever brought it; undefined where there is none. */
  async sizeOf(sha256: string): Promise<number | undefined> {
    const stats = await lstatIfThere(this.layout.blob(sha256));
    return stats?.isFile() ? stats.size : undefined;
  }

  /**
   * Makes a proven partial file a blob. From here on it can be opened; the partial's lock is shared and still held. That its
   * name lasts is for `syncName` to see to. False where another process has taken the partial file over.
   * Errors: those of the disk; then it is no blob.
   */
  async publish(sha256: string, partial: LockedPartial, proof: Omit<Proof, 'modifiedSeconds'>): Promise<boolean> {
    const { handle, path } = partial;
    const modifiedSeconds = Math.floor(Date.now() / 1000);
    await handle.utimes(modifiedSeconds, modifiedSeconds);
    await this.partials.sync(partial);
    await this.proofs.write({ ...proof, modifiedSeconds });
    const target = await this.#placeFor(sha256);
    // The kernel gives the exclusive lock back before it grants the shared one: another process may have been quicker.
    const { ino } = await handle.stat();
    if (!this.locks.tryLock(handle.fd, this.#lockPath(sha256, ino), 'shared')) return false;
    await handle.chmod(0o444);
    await renameOver(path, target);
    return true;
  }

  /**
   * As `publish`, of a proven hard link beside the partial file: it becomes the blob as it is, since its times and its mode are those of
   * somebody's file. False where the link is gone, the file is another than was proven by its time of change, or somebody keeps it locked: then
   * it is to be had in another way. Errors: those of the disk.
   */
  async adopt(sha256: string, { path, linkPath = '' }: LockedPartial, proof: Proof): Promise<boolean> {
    let handle: FileHandle;
    try {
      handle = await open(linkPath, READ_WHAT_IS_THERE);
    } catch (error) {
      if (isStrange(error)) return false;
      throw error;
    }
    try {
      const { ino, mtimeMs } = await handle.stat();
      if (Math.floor(mtimeMs / 1000) !== proof.modifiedSeconds) return false;
      await handle.sync();
      await this.proofs.write(proof);
      const target = await this.#placeFor(sha256);
      if (!this.locks.tryLock(handle.fd, this.#lockPath(sha256, ino), 'shared')) return false;
      await renameOver(linkPath, target);
      await unlink(path);
      return true;
    } finally {
      this.locks.unlock(handle.fd);
      await handle.close();
    }
  }

  async #placeFor(sha256: string): Promise<string> {
    const target = this.layout.blob(sha256);
    if (await makeCacheFolder(this.layout, dirname(target))) await syncFolder(this.layout.blobs);
    return target;
  }

  /** Lets the name of a published blob last. Where that fails, a power cut may take the blob away; its bytes are safe. */
  async syncName(sha256: string): Promise<void> {
    await syncFolder(dirname(this.layout.blob(sha256)));
  }

  /**
   * Has the kernel watch over a blob that was published, where its file system can (fs-verity): from then on nobody can write to
   * it, and what the disk gives back changed is EIO instead of wrong bytes. False where it can't; that is no failure.
   * Errors: those of the disk, which leave the blob as it was.
   */
  async seal(sha256: string): Promise<boolean> {
    const opened = this.openBlob(sha256);
    if (opened === undefined) return false;
    try {
      // With a second name it is somebody's file, which is not ours to seal.
      if (fstatSync(opened.descriptor).nlink > 1) return false;
      await enableVerity(opened.descriptor);
      return true;
    } catch (error) {
      const code = systemErrorCode(error) ?? '';
      if (code !== 'EEXIST' && !CANT_SEAL.has(code)) throw error;
      return code === 'EEXIST';
    } finally {
      this.closeBlob(opened);
    }
  }

  /** Removes an idle blob that is not pinned. False where it is, or someone holds it. */
  evict(sha256: string): Promise<boolean> {
    return this.remove(sha256, () => this.pins.has(sha256));
  }

  /** Removes an idle blob, unless it is pinned ("kept") or has been used after `usedAtMs`, by whatever process. */
  async evictUnused(sha256: string, usedAtMs: number): Promise<Removal> {
    return await this.#removeBlob(sha256, usedAtMs, () => this.pins.has(sha256));
  }

  /**
   * Removes an idle blob. False where someone, in whatever process, holds it, or it `isKept`, asked while nobody else
   * can take it.
   */
  async remove(sha256: string, isKept: () => boolean = () => false): Promise<boolean> {
    return (await this.#removeBlob(sha256, Number.POSITIVE_INFINITY, isKept)).kind === 'removed';
  }

  async #removeBlob(sha256: string, usedAtMs: number, isKept: () => boolean): Promise<Removal> {
    const path = this.layout.blob(sha256);
    return await this.#removeUnheld(path, sha256, async (stats) => {
      if (stats.atimeMs > usedAtMs) return { kind: 'used', usedAtMs: stats.atimeMs };
      if (isKept()) return { kind: 'kept' };
      await unlink(path);
      await this.proofs.remove(sha256);
      return { kind: 'removed', freesRoom: stats.nlink === 1 };
    });
  }

  /** Takes the exclusive lock of a file, where nobody holds it, for `remove` to decide. */
  async #removeUnheld(path: string, sha256: string, remove: (stats: Stats) => Promise<Removal>): Promise<Removal> {
    let handle: FileHandle;
    try {
      handle = await open(path, READ_WHAT_IS_THERE);
    } catch (error) {
      if (isStrange(error)) return { kind: 'removed', freesRoom: false };
      throw error;
    }
    try {
      const stats = await handle.stat();
      if (!this.locks.tryLock(handle.fd, this.#lockPath(sha256, stats.ino), 'exclusive')) return { kind: 'held' };
      // What has been put in its place meanwhile is another file, and not ours to remove.
      return (await isSameFile(path, stats)) ? await remove(stats) : { kind: 'held' };
    } finally {
      this.locks.unlock(handle.fd);
      await handle.close();
    }
  }

  /**
   * Takes a damaged blob out of service and removes it, for good: no power cut brings it back, beside its own proof or that of
   * its successor. False where someone holds it; then it is without a proof.
   */
  async removeDamaged(sha256: string): Promise<boolean> {
    await this.proofs.withdraw(sha256);
    if (!(await this.remove(sha256))) return false;
    await this.#syncRemoval(sha256);
    return true;
  }

  /**
   * Takes a damaged blob out of the way for good, however many hold it: they keep what they have, and nobody else gets it any
   * more.
   */
  async retire(sha256: string): Promise<void> {
    await this.proofs.withdraw(sha256);
    const aside = join(this.layout.retired, `${sha256}.${randomBytes(6).toString('hex')}`);
    try {
      await rename(this.layout.blob(sha256), aside);
    } catch (error) {
      if (systemErrorCode(error) !== 'ENOENT') throw error;
      if ((await lstatIfThere(this.layout.blob(sha256))) === undefined) return;
      await makeCacheFolders(this.layout);
      await rename(this.layout.blob(sha256), aside);
    }
    await this.#syncRemoval(sha256);
  }

  async #syncRemoval(sha256: string): Promise<void> {
    try {
      await syncFolder(dirname(this.layout.blob(sha256)));
    } catch (error) {
      // Somebody has removed the folder with all that was in it.
      if (!isStrange(error)) throw error;
    }
  }

  /** Blobs that lie aside; what is none is removed. */
  async scanRetired(): Promise<RetiredBlob[]> {
    const found = [];
    for (const name of await namesIn(this.layout.retired)) {
      const path = join(this.layout.retired, name);
      const stats = await lstatIfThere(path);
      if (stats?.isFile() && RETIRED_NAME.test(name)) found.push({ name, sizeBytes: stats.size });
      else if (stats !== undefined) await removeForeign(this.layout, path);
    }
    return found;
  }

  /** Removes a blob that lies aside. False where someone still holds it. */
  async removeRetired(name: string): Promise<boolean> {
    const path = join(this.layout.retired, name);
    const removal = await this.#removeUnheld(path, name.slice(0, SHA256_DIGITS), async ({ nlink }) => {
      await unlink(path);
      return { kind: 'removed', freesRoom: nlink === 1 };
    });
    return removal.kind === 'removed';
  }

  /** Remembers that a blob was used now, for the order of eviction after a restart. */
  async touch(sha256: string): Promise<void> {
    // Nothing but that: the modification time tells of a change by somebody else.
    await setAccessTime(this.layout.blob(sha256), Date.now());
  }

  /** False where the disk of the cache is read-only: what is there can be served, and nothing fetched. */
  async isWritable(): Promise<boolean> {
    try {
      await access(this.layout.partials, constants.W_OK);
      return true;
    } catch {
      return false;
    }
  }

  /** Size of the file system below the cache and what an ordinary user may still write to it. */
  async disk(): Promise<{ totalBytes: number; availableBytes: number }> {
    const stats = await statfs(this.layout.root).catch(async (error: unknown) => {
      if (systemErrorCode(error) !== 'ENOENT') throw diskError(error, `the disk of ${this.layout.root} can't be asked`);
      // Somebody has removed the whole cache: it begins anew.
      await makeCacheFolders(this.layout);
      return statfs(this.layout.root);
    });
    return { totalBytes: stats.blocks * stats.bsize, availableBytes: stats.bavail * stats.bsize };
  }
}
