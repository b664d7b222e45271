/**
 * One fetch per blob over all nodes: before a blob is fetched its turn is asked for where the blob is going to be published. Who
 * does not get it waits, without a place in the queue of fetches, and then finds the blob there. Waiting has an end: a slow
 * holder, a destination that does not answer, or one that has no room costs others time, and never their blob.
 */

import type { Logger } from 'pino';
import type { Destination } from '../destinations/destination.js';
import { messageOf, TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';

export type Turn =
  /** Another node's; look again then. */
  { readonly kind: 'wait'; readonly afterMs: number; readonly where: string } | Go;

export interface Go {
  readonly kind: 'go';
  /** The destination that has the blob by its size, so that it would be found there unless its bytes are wrong. */
  readonly foundAt: string | undefined;
  /** Lets others have their turn; to be called once, whatever became of it. */
  readonly end: () => void;
}

/** A blob is waited for so long, and as much longer as it would take at that rate; half the time of an open at most. */
const PATIENCE_MS = 60_000;
const PATIENCE_BYTES_PER_SECOND = 8 * 2 ** 20;
/** The wait before the next look grows with what has been waited for: it costs a quarter of that at most, or half a second. */
const FIRST_LOOK_MS = 500;
const LOOK_SHARE = 0.25;
const MAX_LOOK_MS = 4_000;
/** Looks of many nodes are spread by this share of the wait. */
const SPREAD = 0.25;

const ALONE: Go = { kind: 'go', foundAt: undefined, end: () => undefined };

export interface FetchTurnsOptions {
  readonly destinations: readonly Destination[];
  readonly openTimeoutMs: number;
  readonly log: Logger;
}

export class FetchTurns {
  readonly #options: FetchTurnsOptions;

  constructor(options: FetchTurnsOptions) {
    this.#options = options;
  }

  /** `waitedMs`: how long this fetch has waited for its turn so far. Errors: EINTR aborted. */
  async next(blob: BlobAddress, waitedMs: number, signal: AbortSignal): Promise<Turn> {
    // Nodes that agree at one place do not fetch twice.
    const destination = this.#options.destinations.find(({ claim }) => claim !== undefined);
    if (destination?.claim === undefined) return ALONE;
    const { name } = destination;
    try {
      const claim = await destination.claim(blob, signal);
      if (claim.kind === 'ours') return { ...ALONE, end: () => void claim.release() };
      if (claim.kind === 'there') return { ...ALONE, foundAt: name };
      if (claim.kind === 'full') return ALONE;
    } catch (error) {
      if (error instanceof TmaxError && error.errno === 'EINTR') throw error;
      const { sha256, path } = blob;
      this.#options.log.debug(
        { blob: sha256, path, reason: messageOf(error) },
        'no other node is asked before a fetch',
      );
      return ALONE;
    }
    if (waitedMs < this.#patienceMs(blob)) return { kind: 'wait', afterMs: lookAfterMs(waitedMs), where: name };
    const { sha256: held, path } = blob;
    this.#options.log.info(
      { blob: held, path, source: name },
      'another node is slow with a blob: it is fetched here too',
    );
    return ALONE;
  }

  #patienceMs({ sizeBytes }: BlobAddress): number {
    const patienceMs = PATIENCE_MS + (sizeBytes / PATIENCE_BYTES_PER_SECOND) * 1000;
    return Math.min(patienceMs, this.#options.openTimeoutMs / 2);
  }
}

function lookAfterMs(waitedMs: number): number {
  const waitMs = Math.min(MAX_LOOK_MS, FIRST_LOOK_MS + waitedMs * LOOK_SHARE);
  return Math.round(waitMs * (1 - SPREAD + 2 * SPREAD * Math.random()));
}
