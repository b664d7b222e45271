/**
 * Verification away from the main thread: a pool of threads that starts with the first image and shrinks to nothing
 * when there is nothing to prove. An abort ends one verification; the thread and the others go on.
 */

import { fileURLToPath } from 'node:url';
import { Piscina } from 'piscina';
import { TmaxError, toTmaxError } from '../errors.js';
import { interrupted } from './pace.js';
import type { Verdict, VerifyLevel } from './verdict.js';
import type { Expectation, VerifyOptions } from './verify.js';
import type { VerifyAnswer, VerifyTask } from './worker.js';

/** Raised when a defect in the proof is mended: blobs that an older one let pass are proven again. */
export const VERIFIER_VERSION = 1;

/** How long a thread without work is kept. */
const IDLE_THREAD_MS = 10_000;
/** How long an aborted thread may take to put down its work before it is ended. */
const CLOSE_TIMEOUT_MS = 2_000;
/** How many images may wait for a thread; more are refused with EBUSY. */
const MAX_QUEUED_IMAGES = 4096;
/** Heap of one thread; the tables of the largest image that is proven take less than half of it. */
const THREAD_HEAP_MB = 512;

export class Verifier {
  readonly #threads: number;
  readonly #aborts = new Set<() => void>();
  #pool: Piscina<VerifyTask, VerifyAnswer> | undefined;
  #closed = false;

  /** `threads`: how many images are proven at the same time, at least 1. None runs before the first `verify`. */
  constructor(options: { readonly threads: number }) {
    this.#threads = Math.max(1, options.threads);
  }

  /**
   * As `verifyImage`, in a thread. Errors: EIO local disk, or a thread that died; EINTR aborted or closed (at once,
   * while the thread notices within a few tens of milliseconds); EBUSY too many wait.
   */
  async verify(
    path: string,
    expectation: Expectation,
    level: VerifyLevel,
    options: VerifyOptions = {},
  ): Promise<Verdict> {
    if (this.#closed || options.signal?.aborted === true) throw interrupted();
    const pool = this.#startedPool();
    if (pool.queueSize >= MAX_QUEUED_IMAGES) {
      const message = `${MAX_QUEUED_IMAGES} images wait to be verified already; open fewer at a time`;
      throw new TmaxError('EBUSY', message, { source: 'verify' });
    }
    const aborted = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    let abort = (): void => {};
    const interruption = new Promise<never>((_, reject) => {
      abort = () => {
        Atomics.store(aborted, 0, 1);
        reject(interrupted());
      };
    });
    options.signal?.addEventListener('abort', abort, { once: true });
    this.#aborts.add(abort);
    try {
      const task: VerifyTask = { path, expectation, level, aborted };
      const answer = await Promise.race([pool.run(task), interruption]);
      if (answer.kind === 'verdict') return answer.verdict;
      throw new TmaxError(answer.errno, answer.message, { source: 'verify', level: answer.level });
    } catch (error) {
      throw this.#closed ? interrupted() : toTmaxError(error, 'verify');
    } finally {
      this.#aborts.delete(abort);
      options.signal?.removeEventListener('abort', abort);
    }
  }

  /** Aborts what runs and waits, and ends the threads. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const abort of this.#aborts) abort();
    await this.#pool?.close({ force: true });
  }

  #startedPool(): Piscina<VerifyTask, VerifyAnswer> {
    this.#pool ??= new Piscina<VerifyTask, VerifyAnswer>({
      filename: fileURLToPath(new URL('./worker.js', import.meta.url)),
      minThreads: 0,
      maxThreads: this.#threads,
      idleTimeout: IDLE_THREAD_MS,
      closeTimeout: CLOSE_TIMEOUT_MS,
      resourceLimits: { maxOldGenerationSizeMb: THREAD_HEAP_MB },
      // An idle thread waits in its event loop, where it can be ended, and not in Atomics.wait.
      atomics: 'disabled',
      recordTiming: false,
    });
    return this.#pool;
  }
}
