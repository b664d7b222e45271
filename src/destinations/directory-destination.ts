/**
 * A directory that nodes share, as a destination: what one node has fetched and proven the others find there. All that touches it
 * is done in threads, since it may be on a network's disk that does not answer; then whoever asks is refused at once.
 */

import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Piscina } from 'piscina';
import { CACHE_TAG, CACHE_TAG_NAME } from '../cache-tag.js';
import { type ErrnoName, messageOf, TmaxError } from '../errors.js';
import { CopyState } from '../sources/copy-state.js';
import type { BlobAddress } from '../sources/source.js';
import { endThreads } from '../thread-end.js';
import type { ClaimJob, ClaimOutcome } from './claim-thread.js';
import type { Claim, Destination, PutOptions, RoomLimits } from './destination.js';
import type { PutJob, PutOutcome } from './put-thread.js';
import { startThreads } from './threads.js';

export interface DirectoryDestinationOptions {
  readonly limits: RoomLimits;
  /** Longest silence of its disk. */
  readonly idleTimeoutMs: number;
}

/** Blobs written at one time: one alone rarely fills a network's disk. */
export const MAX_PUT_THREADS = 2;
/** How often it is looked whether a writing thread has done anything. */
const WATCH_INTERVAL_MS = 100;
/** How long giving back what is held may take at the end; what is left then is taken for that of a dead node. */
const CLOSE_TIMEOUT_MS = 2_000;

export class DirectoryDestination implements Destination {
  readonly name: string;
  readonly #folder: string;
  readonly #options: DirectoryDestinationOptions;
  readonly #closing = new AbortController();
  #claims: Piscina<ClaimJob, ClaimOutcome> | undefined;
  #puts: Piscina<PutJob, PutOutcome> | undefined;
  /** Calls that hang in a disk that does not answer. */
  #hanging = 0;

  /** `folder`: absolute. No thread is started before something is asked. */
  constructor(folder: string, options: DirectoryDestinationOptions) {
    this.name = `dir:${folder}`;
    this.#folder = folder;
    this.#options = options;
  }

  /** Errors: ENOTDIR it is no folder, or does not answer; EINVAL it is a cache of tmaxfs. */
  async check(): Promise<void> {
    const looking = (async () => {
      const stats = await stat(this.#folder);
      if (!stats.isDirectory()) throw this.#failure('ENOTDIR', 'is not a folder');
      const tag = await readFile(join(this.#folder, CACHE_TAG_NAME), 'utf8').catch(() => '');
      if (tag !== CACHE_TAG) return;
      const words = 'is a cache of tmaxfs, with a limit of its own: name another folder';
      throw this.#failure('EINVAL', words);
    })();
    try {
      await this.#within(looking);
    } catch (error) {
      if (error instanceof TmaxError && error.errno !== 'EHOSTUNREACH') throw error;
      throw this.#failure('ENOTDIR', `can't be used: ${messageOf(error)}`);
    }
  }

  readonly claim = async (blob: BlobAddress, signal: AbortSignal): Promise<Claim> => {
    const outcome = await this.#ask('claim', blob, signal);
    switch (outcome.kind) {
      case 'ours':
        return { kind: 'ours', release: () => this.#release(outcome.lease) };
      case 'there':
      case 'taken':
      case 'full':
        return { kind: outcome.kind };
      default:
        throw this.#failureOf(outcome);
    }
  };

  async has(blob: BlobAddress, signal: AbortSignal): Promise<boolean> {
    const outcome = await this.#ask('look', blob, signal);
    if (outcome.kind === 'there' || outcome.kind === 'absent') return outcome.kind === 'there';
    throw this.#failureOf(outcome);
  }

  async put(blob: BlobAddress, path: string, { signal, mends }: PutOptions): Promise<'written' | 'there'> {
    if (signal.aborted || this.#closing.signal.aborted) throw this.#calledOff();
    if (this.#hanging > 0) throw this.#silent();
    const state = new CopyState();
    const { sha256, sizeBytes } = blob;
    const { limits } = this.#options;
    this.#puts ??= startThreads<PutJob, PutOutcome>('./put-thread.js', { maxThreads: MAX_PUT_THREADS });
    const job = { folder: this.#folder, sha256, sizeBytes, path, limits, mends, memory: state.memory };
    const outcome = await this.#watch(this.#puts.run(job), state, AbortSignal.any([signal, this.#closing.signal]));
    switch (outcome.kind) {
      case 'written':
      case 'there':
        return outcome.kind;
      case 'abandoned':
        throw this.#calledOff();
      case 'full':
        throw this.#failure('ENOSPC', `has no room for ${blob.path}: ${outcome.words}`);
      case 'damaged':
        throw this.#failure('EBADMSG', `does not get ${blob.path}: ${outcome.words}`);
      case 'failed':
        throw this.#failureOf(outcome);
    }
  }

  /** Gives back what is held. */
  async close(): Promise<void> {
    this.#closing.abort();
    const [claims, puts] = [this.#claims, this.#puts];
    this.#claims = undefined;
    this.#puts = undefined;
    const ending = async () => {
      await claims?.run({ kind: 'end', folder: this.#folder });
      await endThreads(() => Promise.all([claims?.destroy(), puts?.destroy()]));
    };
    await Promise.race([ending().catch(() => undefined), delay(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
  }

  /** Errors: EINTR; EHOSTUNREACH silence. A turn that comes too late is given back. */
  async #ask(kind: 'claim' | 'look', { sha256, sizeBytes }: BlobAddress, signal: AbortSignal): Promise<ClaimOutcome> {
    if (signal.aborted || this.#closing.signal.aborted) throw this.#calledOff();
    if (this.#hanging > 0) throw this.#silent();
    // The one thread is kept: it knows what is held.
    this.#claims ??= startThreads<ClaimJob, ClaimOutcome>('./claim-thread.js', { minThreads: 1, maxThreads: 1 });
    const { limits } = this.#options;
    const asked = this.#claims.run({ kind, folder: this.#folder, sha256, sizeBytes, limits });
    let isLate = true;
    try {
      const outcome = await this.#within(this.#unless(signal, asked));
      isLate = false;
      return outcome;
    } catch (error) {
      if (error instanceof TmaxError) throw error;
      throw this.#failure('EIO', messageOf(error));
    } finally {
      if (isLate) {
        const giveBack = (late: ClaimOutcome) => (late.kind === 'ours' ? this.#release(late.lease) : undefined);
        this.#hangs(asked.then(giveBack), signal);
      }
    }
  }

  /** Never rejects: what can't be given back is taken for that of a dead node in the end. */
  async #release(lease: string): Promise<void> {
    await this.#claims?.run({ kind: 'release', folder: this.#folder, lease }).catch(() => undefined);
  }

  /** Ends with the copy, or before. Errors: EINTR; EHOSTUNREACH silence. */
  async #watch(putting: Promise<PutOutcome>, state: CopyState, signal: AbortSignal): Promise<PutOutcome> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_resolve, reject) => {
      let { steps } = state;
      let aliveAtMs = performance.now();
      timer = setInterval(() => {
        const now = performance.now();
        // Without a thread it waits its turn, unless all of them may hang.
        if (state.steps !== steps || (!state.isStarted && this.#hanging === 0)) {
          steps = state.steps;
          aliveAtMs = now;
        } else if (!state.isStarted || now - aliveAtMs > this.#options.idleTimeoutMs) reject(this.#silent());
      }, WATCH_INTERVAL_MS);
    });
    try {
      return await this.#unless(signal, Promise.race([putting, silence]));
    } catch (error) {
      state.abandon();
      this.#hangs(putting, signal);
      if (error instanceof TmaxError) throw error;
      throw this.#failure('EIO', messageOf(error));
    } finally {
      clearInterval(timer);
    }
  }

  /** Until it comes back nobody else is sent after it. What was called off is no sign of a disk that hangs. */
  #hangs(work: Promise<unknown>, signal: AbortSignal): void {
    const isCalledOff = signal.aborted;
    if (!isCalledOff) this.#hanging += 1;
    const settled = () => {
      if (!isCalledOff) this.#hanging -= 1;
    };
    work.then(settled, settled);
  }

  /** Errors: EHOSTUNREACH silence; those of `work`. */
  async #within<Result>(work: Promise<Result>): Promise<Result> {
    let timer: NodeJS.Timeout | undefined;
    const silence = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(() => reject(this.#silent()), this.#options.idleTimeoutMs);
    });
    try {
      return await Promise.race([work, silence]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Errors: EINTR the signal was first; those of `work`. */
  #unless<Result>(signal: AbortSignal, work: Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      const end = () => reject(this.#calledOff());
      signal.addEventListener('abort', end, { once: true });
      if (signal.aborted) end();
      void work.then(resolve, reject).finally(() => signal.removeEventListener('abort', end));
    });
  }

  #failureOf(outcome: {
    readonly kind: string;
    readonly code?: string | undefined;
    readonly words?: string;
  }): TmaxError {
    const errno = ERRNO_OF[outcome.code ?? ''] ?? 'EIO';
    const remedy = errno === 'EACCES' ? '; let this user write there (chmod 2775 and a group, or 1777)' : '';
    const words = (outcome.words ?? outcome.kind).replaceAll(OPEN_FOLDER, '...');
    return this.#failure(errno, `can't be used: ${words}${remedy}`);
  }

  #silent(): TmaxError {
    return this.#failure('EHOSTUNREACH', `has not answered for ${this.#options.idleTimeoutMs / 1000} s`);
  }

  #calledOff(): TmaxError {
    return this.#failure('EINTR', 'was to be written to, and that was called off');
  }

  #failure(errno: ErrnoName, words: string): TmaxError {
    return new TmaxError(errno, `the destination ${this.name} ${words}`, { source: this.name });
  }
}

/** How the threads name what is below the directory (shared-folder.ts); it says nothing to who reads the message. */
const OPEN_FOLDER = /\/proc\/self\/fd\/\d+/g;

const ERRNO_OF: Readonly<Record<string, ErrnoName>> = {
  EACCES: 'EACCES',
  EPERM: 'EACCES',
  EROFS: 'EROFS',
  ENOSPC: 'ENOSPC',
  EDQUOT: 'ENOSPC',
};
