/**
 * Blobs that a user keeps: never evicted, by whatever process, over restarts. One empty file each below pins/, named by the
 * sha256, so that all daemons on the directory heed it. A pin says nothing of whether the blob is there: it may come later.
 *
 * Who evicts looks for the pin once it holds the blob's exclusive lock (`BlobStore.evict`). So a blob that is on disk after
 * its pin was set stays there.
 */

import { existsSync } from 'node:fs';
import { open, readdir } from 'node:fs/promises';
import { systemErrorCode } from '../errors.js';
import { isStrange, removeStray } from '../small-file.js';
import { syncFolder } from '../temporary-file.js';
import { makeCacheFolder } from './cache-folder.js';
import { type CacheLayout, SHA256_NAME } from './cache-layout.js';

export class Pins {
  readonly #layout: CacheLayout;

  constructor(layout: CacheLayout) {
    this.#layout = layout;
  }

  has(sha256: string): boolean {
    return existsSync(this.#layout.pin(sha256));
  }

  /** Every pinned blob, as the disk has them now. */
  async list(): Promise<ReadonlySet<string>> {
    try {
      return new Set((await readdir(this.#layout.pins)).filter((name) => SHA256_NAME.test(name)));
    } catch (error) {
      if (isStrange(error)) return new Set();
      throw error;
    }
  }

  /** Resolves once they would outlive a power cut. Errors: those of the disk. */
  async add(blobs: Iterable<string>): Promise<void> {
    await makeCacheFolder(this.#layout, this.#layout.pins);
    for (const sha256 of blobs) {
      try {
        await (await open(this.#layout.pin(sha256), 'wx', 0o644)).close();
      } catch (error) {
        if (systemErrorCode(error) !== 'EEXIST') throw error;
      }
    }
    await syncFolder(this.#layout.pins);
    // Its own name too: it may have been made just now.
    await syncFolder(this.#layout.root);
  }

  /** Errors: those of the disk. */
  async remove(blobs: Iterable<string>): Promise<void> {
    for (const sha256 of blobs) await removeStray(this.#layout.pin(sha256));
  }
}
