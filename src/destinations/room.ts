/**
 * Whether a blob may still be written to a shared directory. It is asked once the file is there that says how large the blob will
 * be: of two that do not fit together at least the later one sees the other, so both may be refused, and never both fit.
 * Nothing is locked, and nothing is written down that a dead node could leave wrong.
 */

import { lstatSync, readdirSync, type Stats, statfsSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { systemErrorCode } from '../errors.js';
import type { RoomLimits } from './destination.js';
import { type SharedFolder, statedBytes } from './shared-folder.js';

/** What nobody has written to for so long was left by a node that has died. */
const LEFT_AFTER_MS = 10 * 60_000;
/** A folder that has just changed may change again without another time of change. */
const SETTLED_AFTER_MS = 5_000;
const BLOCK_BYTES = 512;

interface KnownShard {
  readonly changedAtMs: number;
  readonly bytes: number;
}

export class Room {
  readonly #folder: SharedFolder;
  readonly #shards = new Map<string, KnownShard>();

  constructor(folder: SharedFolder) {
    this.#folder = folder;
  }

  /** Whether that many bytes more leave the reserve alone, as things are. Errors: those of the disk. */
  leavesReserve(sizeBytes: number, { reserve }: RoomLimits): boolean {
    return this.#missingFree(sizeBytes, reserve) === undefined;
  }

  /**
   * Why what is being written, `own` among it, does not fit; undefined where it does. Files that dead nodes have left are
   * removed on the way. Errors: those of the disk.
   */
  refusal(own: string, limits: RoomLimits): string | undefined {
    const nowMs = lstatSync(own).mtimeMs;
    const incoming = this.#incoming(nowMs);
    const unwrittenBytes = incoming.reduce((sum, { unwritten }) => sum + unwritten, 0);
    const missing = this.#missingFree(unwrittenBytes, limits.reserve);
    if (missing !== undefined || limits.limitBytes === undefined) return missing;
    // After those that are being written: one that is renamed in between counts twice rather than never.
    const usedBytes = incoming.reduce((sum, { stated }) => sum + stated, this.#blobBytes(nowMs));
    if (usedBytes <= limits.limitBytes) return undefined;
    return `with it there would be ${usedBytes} bytes, and --publish-size allows ${limits.limitBytes}`;
  }

  #missingFree(wantedBytes: number, reserve: RoomLimits['reserve']): string | undefined {
    const { bavail, blocks, bsize } = statfsSync(this.#folder.root);
    const reserveBytes = 'bytes' in reserve ? reserve.bytes : Math.floor((blocks * bsize * reserve.percent) / 100);
    const freeBytes = bavail * bsize;
    if (freeBytes - wantedBytes >= reserveBytes) return undefined;
    return `its file system has ${freeBytes} bytes free, of which ${wantedBytes} are still to be written, and --publish-reserve keeps ${reserveBytes}`;
  }

  #incoming(nowMs: number): { readonly stated: number; readonly unwritten: number }[] {
    const found = [];
    for (const name of namesIn(this.#folder.incoming)) {
      const path = join(this.#folder.incoming, name);
      const stated = statedBytes(name);
      const stats = lstatSync(path, { throwIfNoEntry: false });
      if (stated === undefined || stats === undefined) continue;
      if (nowMs - stats.mtimeMs > LEFT_AFTER_MS && isRemoved(path)) continue;
      found.push({ stated, unwritten: Math.max(0, stated - stats.blocks * BLOCK_BYTES) });
    }
    return found;
  }

  /** A folder whose time of change is the same has the same files: a look costs one `lstat` a folder. */
  #blobBytes(nowMs: number): number {
    let bytes = 0;
    for (const name of namesIn(this.#folder.blobs)) {
      const shard = join(this.#folder.blobs, name);
      const stats = lstatSync(shard, { throwIfNoEntry: false });
      if (stats?.isDirectory()) bytes += this.#shardBytes(shard, stats, nowMs);
    }
    return bytes;
  }

  #shardBytes(shard: string, { mtimeMs }: Stats, nowMs: number): number {
    const known = this.#shards.get(shard);
    if (known?.changedAtMs === mtimeMs) return known.bytes;
    let bytes = 0;
    for (const name of namesIn(shard)) bytes += lstatSync(join(shard, name), { throwIfNoEntry: false })?.size ?? 0;
    if (nowMs - mtimeMs > SETTLED_AFTER_MS) this.#shards.set(shard, { changedAtMs: mtimeMs, bytes });
    return bytes;
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

/** False where it is another user's, in a folder with the sticky bit: it goes on taking the room that it takes. */
function isRemoved(path: string): boolean {
  try {
    unlinkSync(path);
    return true;
  } catch (error) {
    const code = systemErrorCode(error) ?? '';
    if (['EPERM', 'EACCES'].includes(code)) return false;
    if (code === 'ENOENT') return true;
    throw error;
  }
}
