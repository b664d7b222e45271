/**
 * Where everything lies below the cache directory:
 *
 *   CACHEDIR.TAG               says that this folder is a cache of ours, in which what is unknown may be removed
 *   blobs/<2 hex>/<sha256>     0444, whole and proven; appears by rename alone
 *   proofs/<2 hex>/<sha256>    what was proven of it, and of which file; without it a blob is proven again before use
 *   partial/<sha256>           bytes on their way, for their user alone; whoever fetches holds an exclusive lock on it
 *   retired/<sha256>.<random>  damaged blobs that others hold open: gone for all who ask, and removed once they are closed
 *   reservations/              room that fetches will fill (reservations.ts), and the lock under which it is counted
 *   locks/                     lease files, where flock(2) does not work (lease-files.ts)
 *   pins/<sha256>              empty: this blob is never evicted
 *   quarantine/<sha256>.json   why a blob was refused; never its data
 *   catalog/                   see catalog/catalog-store.ts
 *
 * In a directory that a group shares, modes are those of cache-sharing.ts.
 *
 * Every sha256 here has been checked to be 64 hex digits where it entered (the catalog, or a file name matched below).
 */

import { join } from 'node:path';
import type { CacheSharing } from './cache-sharing.js';

export const SHA256_NAME = /^[0-9a-f]{64}$/;
/** A folder of files by the first digits of their sha256. */
export const TWO_HEX = /^[0-9a-f]{2}$/;
/** With the owner's, where locks are lease files: each has files of its own. */
const PARTIAL_NAME = /^([0-9a-f]{64})(\.[0-9a-f]{16})?$/;
export const RETIRED_NAME = /^[0-9a-f]{64}\.[0-9a-f]{12}$/;

const SHARDS = Array.from({ length: 256 }, (_, index) => index.toString(16).padStart(2, '0'));

/** The sha256 of what a partial file is to become; undefined where it is none by its name. */
export function blobOfPartial(name: string): string | undefined {
  return PARTIAL_NAME.exec(name)?.[1];
}

export class CacheLayout {
  readonly root: string;
  /** Undefined where it is one user's alone. */
  readonly sharing: CacheSharing | undefined;

  constructor(root: string, sharing?: CacheSharing) {
    this.root = root;
    this.sharing = sharing;
  }

  /** The folders of the cache that are made with it. */
  get folders(): readonly string[] {
    const { blobs, proofs, partials, retired, reservations, pins, quarantine, catalogs } = this;
    return [blobs, proofs, partials, retired, reservations, pins, quarantine, catalogs];
  }

  /** The folders of blobs and proofs; made with the cache where a group shares it. */
  get shards(): readonly string[] {
    return [this.blobs, this.proofs].flatMap((folder) => SHARDS.map((shard) => join(folder, shard)));
  }

  /** Of lease files. */
  get lockShards(): readonly string[] {
    return SHARDS.map((shard) => join(this.locks, shard));
  }

  /** Whether nothing but folders is made in a folder of the cache. */
  holdsFolders(path: string): boolean {
    return [this.root, this.blobs, this.proofs, this.locks, this.catalogs].includes(path);
  }

  get blobs(): string {
    return join(this.root, 'blobs');
  }

  get proofs(): string {
    return join(this.root, 'proofs');
  }

  get partials(): string {
    return join(this.root, 'partial');
  }

  get retired(): string {
    return join(this.root, 'retired');
  }

  get reservations(): string {
    return join(this.root, 'reservations');
  }

  get locks(): string {
    return join(this.root, 'locks');
  }

  get lockOwners(): string {
    return join(this.locks, 'owners');
  }

  get pins(): string {
    return join(this.root, 'pins');
  }

  get quarantine(): string {
    return join(this.root, 'quarantine');
  }

  get catalogs(): string {
    return join(this.root, 'catalog');
  }

  blob(sha256: string): string {
    return join(this.blobs, sha256.slice(0, 2), sha256);
  }

  proof(sha256: string): string {
    return join(this.proofs, sha256.slice(0, 2), sha256);
  }

  partial(sha256: string): string {
    return join(this.partials, sha256);
  }

  pin(sha256: string): string {
    return join(this.pins, sha256);
  }

  quarantineRecord(sha256: string): string {
    return join(this.quarantine, `${sha256}.json`);
  }
}
