/**
 * What is proven, as the proofs on disk say it *now*: each is read once and remembered for as long as its file stays the
 * same one. Whoever removes or replaces a proof (`tmaxfs verify`, another daemon) is heeded by the very next open.
 */

import type { VerifyLevel } from '../verify/verdict.js';
import type { BlobStore } from './blob-store.js';
import { covers, type Proof } from './proof.js';

/** A file that is to be served. */
export interface ProvenFile {
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly modifiedSeconds: number;
}

export class ProvenBlobs {
  readonly #store: BlobStore;
  readonly #level: VerifyLevel;
  readonly #verifierVersion: number;
  readonly #known = new Map<string, { readonly stamp: string; readonly proof: Proof | undefined }>();

  /** Proofs shallower than `level` or of an older verifier than `verifierVersion` count as none. */
  constructor(store: BlobStore, level: VerifyLevel, verifierVersion: number) {
    this.#store = store;
    this.#level = level;
    this.#verifierVersion = verifierVersion;
  }

  /** The proof that covers this very file, or undefined. Synchronous: a lease waits on it. */
  proofOf(file: ProvenFile): Proof | undefined {
    const proof = this.#read(file.sha256);
    return proof !== undefined && covers(proof, file, this.#level, this.#verifierVersion) ? proof : undefined;
  }

  /** As `proofOf`, for whatever file lies there: for showing, not for serving. */
  claimed(sha256: string): Proof | undefined {
    const proof = this.#read(sha256);
    return proof === undefined ? undefined : this.proofOf(proof);
  }

  /** The proof that lies there now counts as none, even where the disk does not let it be removed. */
  distrust(sha256: string): void {
    const stamp = this.#store.proofs.stamp(sha256);
    if (stamp !== undefined) this.#known.set(sha256, { stamp, proof: undefined });
  }

  /** The blob is gone. */
  forget(sha256: string): void {
    this.#known.delete(sha256);
  }

  #read(sha256: string): Proof | undefined {
    const stamp = this.#store.proofs.stamp(sha256);
    if (stamp === undefined) {
      this.#known.delete(sha256);
      return undefined;
    }
    const known = this.#known.get(sha256);
    if (known?.stamp === stamp) return known.proof;
    const proof = this.#store.proofs.read(sha256);
    this.#known.set(sha256, { stamp, proof });
    return proof;
  }
}
