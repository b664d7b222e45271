/**
 * The thread that knows whose turn it is, over all nodes that share a directory: a lease file for each blob that is being fetched,
 * and a sign of life for as long as one is held or waited for. One thread a directory, never ended before its owner is:
 * what is held is known here.
 *
 * Loaded by `directory-destination.ts` alone. Everything here may block for as long as the directory's disk likes.
 */

import { messageOf, systemErrorCode } from '../errors.js';
import { LeaseFolder } from '../locks/lease-folder.js';
import { workBehind } from '../scheduling.js';
import type { RoomLimits } from './destination.js';
import { Room } from './room.js';
import { SharedFolder } from './shared-folder.js';

workBehind();

export interface WantedTurn {
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly limits: RoomLimits;
}

/** `folder`: absolute, the same with every job. */
export type ClaimJob =
  | ({ readonly kind: 'claim' | 'look'; readonly folder: string } & WantedTurn)
  | { readonly kind: 'release'; readonly folder: string; readonly lease: string }
  /** Gives back all that is held. */
  | { readonly kind: 'end'; readonly folder: string };

export type ClaimOutcome =
  | { readonly kind: 'ours'; readonly lease: string }
  | { readonly kind: 'there' | 'taken' | 'full' | 'absent' | 'done' }
  | { readonly kind: 'failed'; readonly code: string | undefined; readonly words: string };

/** Without any claim for so long nobody is waited for. */
const REST_AFTER_MS = 30_000;

class Desk {
  readonly #folder: SharedFolder;
  readonly #room: Room;
  readonly #leases: LeaseFolder;
  readonly #held = new Set<string>();
  #resting: NodeJS.Timeout | undefined;

  constructor(root: string) {
    this.#folder = new SharedFolder(root);
    this.#room = new Room(this.#folder);
    this.#leases = new LeaseFolder(this.#folder.leases, (path) => this.#folder.make(path).close());
  }

  isThere({ sha256, sizeBytes }: WantedTurn): boolean {
    return this.#folder.sizeOf(sha256) === sizeBytes;
  }

  claim(wanted: WantedTurn): ClaimOutcome {
    if (this.isThere(wanted)) return { kind: 'there' };
    if (!this.#room.leavesReserve(wanted.sizeBytes, wanted.limits)) return { kind: 'full' };
    clearTimeout(this.#resting);
    try {
      return this.#take(wanted);
    } finally {
      this.#restLater();
    }
  }

  release(lease: string): void {
    this.#held.delete(lease);
    this.#leases.giveBack(lease);
    this.#restLater();
  }

  end(): void {
    for (const lease of this.#held) this.#leases.giveBack(lease);
    this.#held.clear();
    clearTimeout(this.#resting);
    this.#leases.rest();
  }

  #take(wanted: WantedTurn): ClaimOutcome {
    // Who only waits leaves no files to be made and removed.
    if (this.#leases.isTaken(wanted.sha256)) return { kind: 'taken' };
    const lease = this.#leases.tryTake(wanted.sha256, 'exclusive');
    if (lease === undefined) return { kind: 'taken' };
    this.#held.add(lease);
    // Whoever had it before may have brought the blob in between.
    if (!this.isThere(wanted)) return { kind: 'ours', lease };
    this.release(lease);
    return { kind: 'there' };
  }

  #restLater(): void {
    clearTimeout(this.#resting);
    if (this.#held.size > 0) return;
    this.#resting = setTimeout(() => this.#leases.rest(), REST_AFTER_MS).unref();
  }
}

let desk: Desk | undefined;

/** Never rejects. */
export default function settle(job: ClaimJob): ClaimOutcome {
  try {
    desk ??= new Desk(job.folder);
    switch (job.kind) {
      case 'claim':
        return desk.claim(job);
      case 'look':
        return { kind: desk.isThere(job) ? 'there' : 'absent' };
      case 'release':
        desk.release(job.lease);
        return { kind: 'done' };
      case 'end':
        desk.end();
        return { kind: 'done' };
    }
  } catch (error) {
    return { kind: 'failed', code: systemErrorCode(error), words: messageOf(error) };
  }
}
