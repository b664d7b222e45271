/**
 * Finds bit rot before anybody opens it: hashes every idle blob once a period, at a bounded rate, the one that was checked
 * longest ago first, one at a time. When each was checked is kept in its proof, so that restarts lose nothing.
 *
 * Nobody notices it: a blob is opened, locked and closed for each piece that is read, so that no eviction finds it held
 * for longer than that; it rests while fetches run; access times stay; and what is read neither comes from the page cache
 * (the disk is what is to be checked) nor stays in it.
 */

import { createHash, type Hash } from 'node:crypto';
import { read } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Logger } from 'pino';
import { messageOf } from '../errors.js';
import { forgetCachedPages } from '../libc.js';
import type { BlobCache } from './blob-cache.js';
import type { BlobStore } from './blob-store.js';
import type { Proof } from './proof.js';

/** Read at a time; hashing it holds the main thread for less than a millisecond. */
const PIECE_BYTES = 1 << 20;
/** Faster than needed to be through once a period, so that what rests and restarts cost is made up for. */
const HEADROOM = 2;
const MIN_BYTES_PER_SECOND = 64 * 1024;
const MAX_BYTES_PER_SECOND = 64 * 1024 * 1024;
/** How often it looks whether the fetches for which it rests are done. */
const REST_MS = 1000;
/** Longest time without a look at what is due: far below what a timer can wait, whatever the period. */
const MAX_WAIT_MS = 3_600_000;

/** Proofs are read synchronously: so many, and other things have their turn. */
const PROOFS_PER_TURN = 64;

const readPiece = promisify(read);

/** Time, for tests to bend. `delay` rejects once the signal is aborted. */
export interface Clock {
  now(): number;
  delay(milliseconds: number, signal: AbortSignal): Promise<void>;
}

export interface ScrubberOptions {
  readonly store: BlobStore;
  readonly cache: Pick<BlobCache, 'isIdle' | 'isFetching' | 'drop'>;
  readonly periodMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface ScrubStatistics {
  readonly checkedBlobs: number;
  readonly damagedBlobs: number;
}

export class Scrubber {
  readonly #options: ScrubberOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> = Promise.resolve();
  #checkedBlobs = 0;
  #damagedBlobs = 0;

  constructor(options: ScrubberOptions) {
    this.#options = options;
  }

  start(): void {
    this.#running = this.#run();
  }

  statistics(): ScrubStatistics {
    return { checkedBlobs: this.#checkedBlobs, damagedBlobs: this.#damagedBlobs };
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await this.#round();
      } catch (error) {
        if (signal.aborted) return;
        // A disk that fails in one place is looked at again later, in all others too.
        this.#options.log.warn(
          { reason: messageOf(error) },
          'looking for damaged blobs was broken off; tried again later',
        );
        await this.#wait(MAX_WAIT_MS).catch(() => undefined);
      }
    }
  }

  /** All that is due now, then a wait where that was nothing. */
  async #round(): Promise<void> {
    const { clock, periodMs, store } = this.#options;
    const checkedAtMs = new Map<string, number>();
    let totalBytes = 0;
    for (const [index, { sha256, sizeBytes }] of (await store.list()).entries()) {
      if (index % PROOFS_PER_TURN === 0) await setImmediate();
      totalBytes += sizeBytes;
      // Without a proof it is hashed before it is served, anyway.
      const proof = store.proofs.read(sha256);
      if (proof !== undefined) checkedAtMs.set(sha256, Date.parse(proof.checkedAt));
    }
    const oldestFirst = [...checkedAtMs].sort(([, a], [, b]) => a - b);
    const due = oldestFirst.filter(([, atMs]) => atMs + periodMs <= clock.now());
    const rate = (HEADROOM * totalBytes * 1000) / periodMs;
    const bytesPerSecond = Math.min(MAX_BYTES_PER_SECOND, Math.max(MIN_BYTES_PER_SECOND, rate));
    const before = this.#checkedBlobs;
    for (const [sha256] of due) await this.#scrub(sha256, bytesPerSecond);
    if (this.#checkedBlobs > before) return;
    const next = due.length === 0 ? (oldestFirst[0]?.[1] ?? clock.now()) + periodMs - clock.now() : MAX_WAIT_MS;
    await this.#wait(Math.max(REST_MS, Math.min(next, MAX_WAIT_MS)));
  }

  async #scrub(sha256: string, bytesPerSecond: number): Promise<void> {
    const { cache, clock, log, periodMs, store } = this.#options;
    const proof = store.proofs.read(sha256);
    // Another daemon on this directory, or `tmaxfs verify`, may have been here first.
    if (proof === undefined || Date.parse(proof.checkedAt) + periodMs > clock.now()) return;
    const outcome = await this.#hash(proof, bytesPerSecond);
    if (outcome === undefined) return;
    this.#checkedBlobs += 1;
    if (outcome === sha256) {
      await store.proofs.write({ ...proof, checkedAt: new Date(clock.now()).toISOString() });
      log.debug({ blob: sha256, bytes: proof.sizeBytes }, 'a blob was found to be as it was proven');
      return;
    }
    this.#damagedBlobs += 1;
    const message = outcome === 'unreadable' ? 'the disk can’t read it' : `its sha256 has become ${outcome}`;
    await cache.drop(sha256, { code: outcome === 'unreadable' ? outcome : 'sha256-mismatch', message });
  }

  /** The digest of the file that was proven; undefined where that is gone, or in use: then its turn comes again. */
  async #hash(proof: Proof, bytesPerSecond: number): Promise<string | 'unreadable' | undefined> {
    const hash = createHash('sha256');
    let inode: number | undefined;
    for (let at = 0; at < proof.sizeBytes; at += PIECE_BYTES) {
      const length = Math.min(PIECE_BYTES, proof.sizeBytes - at);
      await this.#wait((1000 * length) / bytesPerSecond);
      while (this.#options.cache.isFetching) await this.#wait(REST_MS);
      const piece = await this.#hashPiece(hash, proof, at, length, inode);
      if (piece === undefined || piece === 'unreadable') return piece;
      inode = piece;
    }
    return hash.digest('hex');
  }

  /** The inode that was read, where it is the one that is meant. */
  async #hashPiece(
    hash: Hash,
    proof: Proof,
    offsetBytes: number,
    lengthBytes: number,
    inode: number | undefined,
  ): Promise<number | 'unreadable' | undefined> {
    const { cache, store } = this.#options;
    const opened = cache.isIdle(proof.sha256) ? store.openBlob(proof.sha256) : undefined;
    if (opened === undefined) return undefined;
    try {
      const isSame = inode === undefined || inode === opened.inode;
      if (!isSame || opened.modifiedSeconds !== proof.modifiedSeconds || opened.sizeBytes !== proof.sizeBytes) {
        return undefined;
      }
      forgetCachedPages(opened.descriptor, offsetBytes, lengthBytes);
      const buffer = Buffer.allocUnsafe(lengthBytes);
      const { bytesRead } = await readPiece(opened.descriptor, buffer, 0, lengthBytes, offsetBytes);
      if (bytesRead < lengthBytes) return 'unreadable';
      hash.update(buffer);
      forgetCachedPages(opened.descriptor, offsetBytes, lengthBytes);
      return opened.inode;
    } catch {
      return 'unreadable';
    } finally {
      store.closeBlob(opened);
    }
  }

  async #wait(milliseconds: number): Promise<void> {
    await this.#options.clock.delay(milliseconds, this.#stopping.signal);
  }
}
