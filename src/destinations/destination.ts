/**
 * Where proven blobs are written to, for other nodes to find them: the counterpart of a source. Nothing is ever taken away there,
 * and nothing that is written there is trusted by whoever reads it.
 */

import type { BlobAddress } from '../sources/source.js';

/** What a file system is left, so that nobody else's writing fails. */
export interface RoomLimits {
  /** Bytes, or a share of the whole, that stay free. */
  readonly reserve: { readonly bytes: number } | { readonly percent: number };
  /** Most that all blobs there may take together; undefined: as much as the reserve leaves. */
  readonly limitBytes: number | undefined;
}

/** Whose turn it is to fetch a blob, over all nodes that use the destination. */
export type Claim =
  /** This node's, until it is released, which never fails. */
  | { readonly kind: 'ours'; readonly release: () => Promise<void> }
  /** The blob is there by now, as far as its size tells. */
  | { readonly kind: 'there' }
  /** Another node's. */
  | { readonly kind: 'taken' }
  /** It could not be written there: there is nothing to wait for. */
  | { readonly kind: 'full' };

export interface PutOptions {
  readonly signal: AbortSignal;
  /** What is there has been found wrong: it is judged by its bytes, and replaced where they are. */
  readonly mends: boolean;
}

export interface Destination {
  /** As the source of the same place is called: "dir:/path". */
  readonly name: string;
  /**
   * Asks whose turn it is. Absent where nodes can't agree there. Errors: EHOSTUNREACH it does not answer; EACCES, EIO, … it
   * can't be used; EINTR.
   */
  readonly claim?: (blob: BlobAddress, signal: AbortSignal) => Promise<Claim>;
  /** Whether it has the blob, as far as its size tells. Errors: as `claim`. */
  has(blob: BlobAddress, signal: AbortSignal): Promise<boolean>;
  /**
   * Writes the blob at `path`, hashing it once more on the way; it can be found there as a whole, or not at all. `there`: it
   * had been. Errors: ENOSPC no room above what is to be left, or a quota; EBADMSG the file is not that blob any more;
   * EACCES, EROFS; EHOSTUNREACH it does not answer; EINTR; EIO anything else.
   */
  put(blob: BlobAddress, path: string, options: PutOptions): Promise<'written' | 'there'>;
  close(): Promise<void>;
}
