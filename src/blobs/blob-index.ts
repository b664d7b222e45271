/**
 * Which blobs lie on disk, kept current over all processes without looking at each: a folder whose time of change is what it was
 * has the files that it had. So a look costs one `lstat` a folder (256) and a listing of those that have changed.
 *
 * What this process adds or removes counts at once, also while a look is under way: a folder is listed and compared in one turn.
 */

import { type BigIntStats, lstatSync, readdirSync } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { systemErrorCode } from '../errors.js';
import type { StoredBlob } from './blob-store.js';
import { type CacheLayout, SHA256_NAME, TWO_HEX } from './cache-layout.js';

/** What a look has found. */
export interface IndexChanges {
  /** New since the last look, oldest use first. */
  readonly added: readonly StoredBlob[];
  /** The sha256 of those that have gone since. */
  readonly gone: readonly string[];
  /** The folders (first two digits of the sha256) that were listed. */
  readonly listed: ReadonlySet<string>;
  /** Paths of what is no blob, as far as it was come across. */
  readonly strays: readonly string[];
}

interface Shard {
  /** Time of change of the folder, nanoseconds, when it was listed last; undefined: list it in any case. */
  changedNs: bigint | undefined;
  /** When that time was seen first, and when it was listed last; milliseconds of this process. */
  seenAtMs: number;
  listedAtMs: number;
  readonly sizes: Map<string, number>;
}

/**
 * A folder may change twice within one tick of its file system's clock: what was listed sooner than this after a change was
 * seen is listed again. The second is for file systems that keep whole seconds only.
 */
const FINE_TICK_MS = 50;
const COARSE_TICK_MS = 2000;
/** Folders whose time of change is asked for at one time. */
const FOLDERS_PER_TURN = 32;

export class BlobIndex {
  readonly #layout: CacheLayout;
  readonly #shards = new Map<string, Shard>();
  #totalBytes = 0;

  constructor(layout: CacheLayout) {
    this.#layout = layout;
  }

  get totalBytes(): number {
    return this.#totalBytes;
  }

  has(sha256: string): boolean {
    return this.#shards.get(shardOf(sha256))?.sizes.has(sha256) ?? false;
  }

  /** To be told of after its file has appeared. */
  add(sha256: string, sizeBytes: number): void {
    const shard = this.#shard(shardOf(sha256));
    shard.changedNs = undefined;
    this.#set(shard, sha256, sizeBytes);
  }

  /** Found again by the next look, where that was wrong. */
  remove(sha256: string): void {
    const shard = this.#shard(shardOf(sha256));
    shard.changedNs = undefined;
    this.#delete(shard, sha256);
  }

  /** Looks at the disk. One at a time. Errors: those of listing it. */
  async look(): Promise<IndexChanges> {
    const added: StoredBlob[] = [];
    const gone: string[] = [];
    const listed = new Set<string>();
    const strays: string[] = [];
    const folders = new Map<string, bigint>();
    const names = await namesIn(this.#layout.blobs);
    // A few at a time: the answers to all of them would be dealt with in one turn.
    for (let first = 0; first < names.length; first += FOLDERS_PER_TURN) {
      await Promise.all(
        names.slice(first, first + FOLDERS_PER_TURN).map(async (name) => {
          const path = join(this.#layout.blobs, name);
          const stats = await lstatIfThere(path);
          if (stats?.isDirectory() && TWO_HEX.test(name)) folders.set(name, stats.ctimeNs);
          else if (stats !== undefined) strays.push(path);
        }),
      );
    }
    for (const name of folders.keys()) this.#shard(name);
    for (const [name, shard] of this.#shards) {
      if (!this.#isDue(shard, folders.get(name))) continue;
      listed.add(name);
      this.#list(name, shard, added, gone, strays);
      // A listing of one folder takes well below a millisecond.
      await setImmediate();
    }
    return { added: added.sort((a, b) => a.usedAtMs - b.usedAtMs), gone, listed, strays };
  }

  /** Notes the folder's time of change; whether its files may be others than those that are known. */
  #isDue(shard: Shard, changedNs: bigint | undefined): boolean {
    if (changedNs === undefined) {
      shard.changedNs = undefined;
      return shard.sizes.size > 0;
    }
    if (changedNs !== shard.changedNs) {
      shard.changedNs = changedNs;
      shard.seenAtMs = performance.now();
      return true;
    }
    const tickMs = changedNs % 1_000_000_000n === 0n ? COARSE_TICK_MS : FINE_TICK_MS;
    return shard.listedAtMs - shard.seenAtMs < tickMs;
  }

  #list(name: string, shard: Shard, added: StoredBlob[], gone: string[], strays: string[]): void {
    shard.listedAtMs = performance.now();
    const folder = join(this.#layout.blobs, name);
    const there = new Set<string>();
    for (const file of namesInSync(folder)) {
      const path = join(folder, file);
      if (shard.sizes.has(file)) {
        there.add(file);
        continue;
      }
      const stats = lstatSync(path, { throwIfNoEntry: false });
      if (stats === undefined) continue;
      if (!stats.isFile() || !SHA256_NAME.test(file) || shardOf(file) !== name) {
        strays.push(path);
        continue;
      }
      there.add(file);
      this.#set(shard, file, stats.size);
      const modifiedSeconds = Math.floor(stats.mtimeMs / 1000);
      added.push({ sha256: file, sizeBytes: stats.size, modifiedSeconds, usedAtMs: stats.atimeMs });
    }
    for (const sha256 of [...shard.sizes.keys()]) {
      if (there.has(sha256)) continue;
      this.#delete(shard, sha256);
      gone.push(sha256);
    }
  }

  #shard(name: string): Shard {
    const known = this.#shards.get(name);
    if (known !== undefined) return known;
    const shard = { changedNs: undefined, seenAtMs: 0, listedAtMs: 0, sizes: new Map() };
    this.#shards.set(name, shard);
    return shard;
  }

  #set(shard: Shard, sha256: string, sizeBytes: number): void {
    this.#totalBytes += sizeBytes - (shard.sizes.get(sha256) ?? 0);
    shard.sizes.set(sha256, sizeBytes);
  }

  #delete(shard: Shard, sha256: string): void {
    this.#totalBytes -= shard.sizes.get(sha256) ?? 0;
    shard.sizes.delete(sha256);
  }
}

function shardOf(sha256: string): string {
  return sha256.slice(0, 2);
}

async function namesIn(folder: string): Promise<string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

/** Nothing, where the folder has gone, or is none any more. */
function namesInSync(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(systemErrorCode(error) ?? '')) return [];
    throw error;
  }
}

async function lstatIfThere(path: string): Promise<BigIntStats | undefined> {
  try {
    return await lstat(path, { bigint: true });
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}
