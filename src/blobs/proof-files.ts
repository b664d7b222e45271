/** The proofs of a cache, each in a file by the sha256 of its blob (proof.ts says what they mean). */

import { readdir, rm, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { systemErrorCode } from '../errors.js';
import { replaceSmallFile } from '../small-file.js';
import { isTemporary, removeIfLeft, syncFolder } from '../temporary-file.js';
import { makeCacheFolder } from './cache-folder.js';
import { type CacheLayout, SHA256_NAME, TWO_HEX } from './cache-layout.js';
import { type Proof, proofStamp, readProof } from './proof.js';

export class ProofFiles {
  readonly #layout: CacheLayout;

  constructor(layout: CacheLayout) {
    this.#layout = layout;
  }

  /** Undefined where there is none. Synchronous: a lease waits on it. */
  read(sha256: string): Proof | undefined {
    return readProof(this.#layout.proof(sha256));
  }

  /** What changes whenever the proof is replaced; undefined where there is none. Cheap: every open asks for it. */
  stamp(sha256: string): string | undefined {
    return proofStamp(this.#layout.proof(sha256));
  }

  /** Not synced: losing it costs one verification. Errors: those of the disk. */
  async write(proof: Proof): Promise<void> {
    const path = this.#layout.proof(proof.sha256);
    await makeCacheFolder(this.#layout, dirname(path));
    await replaceSmallFile(path, JSON.stringify(proof), this.#layout.sharing?.readableMode);
  }

  /** Of a blob that is gone. Errors: those of the disk. */
  async remove(sha256: string): Promise<void> {
    await rm(this.#layout.proof(sha256), { force: true });
  }

  /**
   * Takes a blob out of service: whoever is asked for it next proves it again first. What is open stays open. Errors: those of the
   * disk.
   */
  async withdraw(sha256: string): Promise<void> {
    const path = this.#layout.proof(sha256);
    try {
      await unlink(path);
    } catch (error) {
      if (systemErrorCode(error) === 'ENOENT') return;
      throw error;
    }
    // A power cut must not bring it back beside a damaged blob.
    await syncFolder(dirname(path));
  }

  /** Removes what killed processes have left: proofs of blobs that are not there, and what was to become one. Errors: those of the disk. */
  async removeLeft(isThere: (sha256: string) => boolean): Promise<void> {
    for (const shard of await readdir(this.#layout.proofs, { withFileTypes: true })) {
      if (!shard.isDirectory() || !TWO_HEX.test(shard.name)) continue;
      const folder = join(this.#layout.proofs, shard.name);
      for (const name of await readdir(folder)) {
        // As for `removeForeign`.
        const isOurs = this.#layout.sharing === undefined || SHA256_NAME.test(name) || isTemporary(name);
        if (isOurs && !isThere(name)) await removeIfLeft(join(folder, name));
      }
    }
  }
}
