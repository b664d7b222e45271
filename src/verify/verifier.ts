/**
 * Verification away from the main thread: a pool of threads that starts with the first image and shrinks to nothing
 * when there is nothing to prove. Form is proven by one thread, then the data in parts by as many as are free. An abort
 * ends one verification; the threads and the others go on.
 *
 * An image that lies there whole is judged by `verify`, one that is being written by what `follow` gives.
 */

import { fileURLToPath } from 'node:url';
import PQueue from 'p-queue';
import type { Piscina } from 'piscina';
import { TmaxError, toTmaxError } from '../errors.js';
import { startPool } from '../thread-pool.js';
import { FollowingProof } from './following-proof.js';
import { fileEndsIn } from './image-file.js';
import { interrupted } from './pace.js';
import { splitBlocks } from './squashfs/data-blocks.js';
import type { RefusedVerdict, Verdict, VerifyLevel } from './verdict.js';
import { concludeProof, type DataPlan, type Expectation, type VerifyOptions } from './verify.js';
import type { VerifyAnswer, VerifyTask } from './worker.js';

/** Raised when a defect in the proof is mended: blobs that an older one let pass are proven again. */
export const VERIFIER_VERSION = 1;

/** How long a thread without work is kept. */
const IDLE_THREAD_MS = 10_000;
/** How long an aborted thread may take to put down its work before it is ended. */
const CLOSE_TIMEOUT_MS = 2_000;
/** How many images may wait for a thread; more are refused with EBUSY. */
const MAX_QUEUED_IMAGES = 4096;
/** Data on disk that one thread decompresses at a time, about a quarter of a second's work: the threads share an image. */
const PART_BYTES = 32 << 20;
/** Heap of one thread; the tables of the largest image that is proven take less than half of it. */
const THREAD_HEAP_MB = 512;

/** One verification, as far as it can be called off. */
interface Call {
  /** Shared with the threads: its first element is 1 once the answer is no longer wanted. */
  readonly aborted: Int32Array<SharedArrayBuffer>;
  readonly signal: AbortSignal;
  /** Rejects with EINTR when it is called off. */
  readonly interruption: Promise<never>;
  abort(): void;
  /** To be called when nothing of it is left. */
  end(): void;
}

export class Verifier {
  readonly #threads: number;
  /** As many at a time as there are threads: the parts of an image that is begun go before images that are not. */
  readonly #images: PQueue;
  readonly #aborts = new Set<() => void>();
  #pool: Piscina<VerifyTask, VerifyAnswer> | undefined;
  #closed = false;

  /** `threads`: at least 1. None runs before the first `verify`. */
  constructor(options: { readonly threads: number }) {
    this.#threads = Math.max(1, options.threads);
    this.#images = new PQueue({ concurrency: this.#threads });
  }

  /**
   * As `verifyImage`, in threads. Errors: EIO local disk, or a thread that died; EINTR aborted or closed (at once, while
   * the threads notice within a few tens of milliseconds); EBUSY too many wait.
   */
  async verify(
    path: string,
    expectation: Expectation,
    level: VerifyLevel,
    options: VerifyOptions = {},
  ): Promise<Verdict> {
    if (this.#closed || options.signal?.aborted === true) throw interrupted();
    if (this.#images.size >= MAX_QUEUED_IMAGES) {
      const message = `${MAX_QUEUED_IMAGES} images wait to be verified already; open fewer at a time`;
      throw new TmaxError('EBUSY', message, { source: 'verify' });
    }
    const call = this.#begin(options.signal);
    try {
      const proof = this.#images.add(async () => {
        if (call.signal.aborted) throw interrupted();
        return await this.#prove(path, expectation, level, call);
      });
      return await Promise.race([proof, call.interruption]);
    } catch (error) {
      throw this.#closed ? interrupted() : toTmaxError(error, 'verify');
    } finally {
      call.end();
    }
  }

  /**
   * Proves the image at `path` while it is written. The caller tells how far that is, compares size and digest, and ends the
   * proof by `conclude` or `abandon`. Errors: none here; those of `conclude` are those of `verify`.
   */
  follow(path: string, expectation: Expectation, level: VerifyLevel, options: VerifyOptions = {}): FollowingProof {
    const call = this.#begin(options.signal);
    const { aborted } = call;
    if (this.#closed) call.abort();
    const orInterruption = async <Result>(work: Promise<Result>): Promise<Result> => {
      try {
        return await Promise.race([work, call.interruption]);
      } catch (error) {
        throw this.#closed ? interrupted() : toTmaxError(error, 'verify');
      }
    };
    return new FollowingProof(expectation.sizeBytes, {
      form: async (growing) => {
        const answer = await orInterruption(this.#run({ kind: 'growing-form', path, growing, level, aborted }));
        return answer.kind === 'form' ? answer.proof : undefined;
      },
      data: (plan) => orInterruption(this.#proveData(plan, call)),
      endsIn: (tail) => orInterruption(fileEndsIn(path, tail)),
      whole: () => this.verify(path, { ...expectation, computedSha256: expectation.sha256 }, level, options),
      last: (form, parts) => orInterruption(concludeProof(form, path, parts, { signal: call.signal })),
      stop: () => {
        call.abort();
        call.end();
      },
    });
  }

  #begin(signal: AbortSignal | undefined): Call {
    const aborted = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const controller = new AbortController();
    const abort = (): void => {
      Atomics.store(aborted, 0, 1);
      controller.abort();
    };
    const interruption = new Promise<never>((_, reject) => {
      controller.signal.addEventListener('abort', () => reject(interrupted()), { once: true });
    });
    // Nobody may be waiting at that moment.
    interruption.catch(() => {});
    const end = (): void => {
      this.#aborts.delete(abort);
      signal?.removeEventListener('abort', abort);
    };
    signal?.addEventListener('abort', abort, { once: true });
    if (signal?.aborted === true) abort();
    this.#aborts.add(abort);
    return { aborted, signal: controller.signal, interruption, abort, end };
  }

  async #prove(path: string, expectation: Expectation, level: VerifyLevel, call: Call): Promise<Verdict> {
    const form = await this.#run({ kind: 'form', path, expectation, level, aborted: call.aborted });
    if (form.kind !== 'form') throw new TypeError('a verification thread answered another question');
    const { verdict, data } = form.proof;
    if (data === undefined) return verdict;
    const parts = splitBlocks(data.blocks, PART_BYTES).map((blocks) => this.#proveData({ ...data, blocks }, call));
    return await concludeProof(verdict, path, await Promise.all(parts), { signal: call.signal });
  }

  async #proveData(plan: DataPlan, { aborted }: Call): Promise<RefusedVerdict | undefined> {
    const part = await this.#run({ kind: 'data', plan, aborted });
    if (part.kind !== 'data') throw new TypeError('a verification thread answered another question');
    return part.refused;
  }

  async #run(task: VerifyTask): Promise<Exclude<VerifyAnswer, { kind: 'error' }>> {
    const answer = await this.#startedPool().run(task);
    if (answer.kind !== 'error') return answer;
    throw new TmaxError(answer.errno, answer.message, { source: 'verify', level: answer.level });
  }

  /** Aborts what runs and waits, and ends the threads. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const abort of this.#aborts) abort();
    await this.#pool?.close({ force: true });
  }

  #startedPool(): Piscina<VerifyTask, VerifyAnswer> {
    this.#pool ??= startPool<VerifyTask, VerifyAnswer>({
      filename: fileURLToPath(new URL('./worker.js', import.meta.url)),
      minThreads: 0,
      maxThreads: this.#threads,
      idleTimeout: IDLE_THREAD_MS,
      closeTimeout: CLOSE_TIMEOUT_MS,
      resourceLimits: { maxOldGenerationSizeMb: THREAD_HEAP_MB },
    });
    return this.#pool;
  }
}
