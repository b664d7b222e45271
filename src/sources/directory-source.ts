/**
 * A directory as a source of blobs: the Hub's cache of another program, a downloaded repository, another cache of tmaxfs. It is
 * only ever read; what it has is judged like any download. The work is done in threads of its own, since the directory may
 * be on a network's disk that does not answer.
 */

import { access, constants, stat } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Piscina } from 'piscina';
import { messageOf, TmaxError } from '../errors.js';
import { endThreads } from '../thread-end.js';
import { startPool } from '../thread-pool.js';
import { CopyState } from './copy-state.js';
import type { CopyJob, CopyOutcome } from './copy-thread.js';
import { placesOf } from './directory-layouts.js';
import { AbsentBlob, aborted } from './failure.js';
import { IDLE_THREADS_MS, MAX_COPY_THREADS, PROGRESS_INTERVAL_MS } from './limits.js';
import { fromPlainError } from './plain-error.js';
import type { BlobAddress, Download, DownloadOptions, Source } from './source.js';
import { SourceHealth } from './source-health.js';

export interface DirectorySourceOptions {
  /** Longest silence of its disk. While it lasts, whoever asks is refused at once. */
  readonly idleTimeoutMs: number;
}

const LET_IN = 'let the user who mounts enter it (chmod a+x, and on the folders above), or name another';

/** How long threads may take to end; one that hangs in its disk ends with the process. */
const CLOSE_TIMEOUT_MS = 2_000;

export class DirectorySource implements Source {
  readonly name: string;
  readonly health = new SourceHealth();
  readonly #folder: string;
  readonly #options: DirectorySourceOptions;
  readonly #closing = new AbortController();
  #pool: Piscina<CopyJob, CopyOutcome> | undefined;
  /** Copies that hang in a disk that does not answer. */
  #hanging = 0;

  /** `folder`: absolute. No thread is started before the first download. */
  constructor(folder: string, options: DirectorySourceOptions) {
    this.name = `dir:${folder}`;
    this.#folder = folder;
    this.#options = options;
  }

  /**
   * Returns what keeps this user from fetching anything there, which may yet be mended; told to its health as well.
   * Errors: ENOTDIR it is no folder, or its disk does not answer.
   */
  async check(): Promise<string | undefined> {
    let warning: string | undefined;
    const looking = stat(this.#folder).then(
      async (stats) => {
        if (!stats.isDirectory()) return 'is not a folder';
        warning = await access(this.#folder, constants.X_OK).then(() => undefined, messageOf);
        return undefined;
      },
      (error: unknown) => `can't be read: ${messageOf(error)}; name a directory that is there, or mount it first`,
    );
    const problem = await Promise.race([
      looking,
      delay(this.#options.idleTimeoutMs, 'does not answer', { ref: false }),
    ]);
    if (problem !== undefined) {
      throw new TmaxError('ENOTDIR', `the source ${this.name} ${problem}`, { source: this.name, level: 'error' });
    }
    if (warning === undefined) return undefined;
    const words = `nothing comes from the source ${this.name}: ${warning}; ${LET_IN}`;
    this.health.failed(words, 'patient');
    return words;
  }

  async download(
    blob: BlobAddress,
    partialPath: string,
    { signal, linkPath, onProgress }: DownloadOptions,
  ): Promise<Download> {
    if (signal.aborted || this.#closing.signal.aborted) throw aborted();
    if (this.#hanging > 0) throw this.#silent(blob);
    const { path, sha256, sizeBytes } = blob;
    const state = new CopyState();
    const places = placesOf(blob);
    const job = { folder: this.#folder, places, sizeBytes, sha256, partialPath, linkPath, memory: state.memory };
    const copying = this.#startedPool().run(job);
    const outcome = await this.#watch(
      blob,
      copying,
      state,
      AbortSignal.any([signal, this.#closing.signal]),
      onProgress,
    );
    if (outcome.kind === 'copied') {
      onProgress?.(outcome.sizeBytes);
      const { sizeBytes, linked } = outcome;
      return { sizeBytes, sha256: outcome.sha256, resumedBytes: 0, attempts: 1, ...(linked && { linked }) };
    }
    if (outcome.kind === 'failed') throw fromPlainError(outcome.error);
    if (outcome.kind === 'abandoned') throw aborted();
    if (outcome.kind === 'closed') {
      const message = `${path} can't be had from ${this.name}: ${outcome.reason}; ${LET_IN}`;
      throw new TmaxError('EHOSTUNREACH', message, { source: this.name });
    }
    const reason = outcome.reason === '' ? '' : ` (${outcome.reason})`;
    throw new AbsentBlob(`${path} is not in ${this.name}${reason}`, { source: this.name });
  }

  /** Ends what is being copied. */
  async close(): Promise<void> {
    this.#closing.abort();
    const pool = this.#pool;
    this.#pool = undefined;
    if (pool === undefined) return;
    const ended = endThreads(() => pool.destroy());
    await Promise.race([ended, delay(CLOSE_TIMEOUT_MS, undefined, { ref: false })]);
  }

  /** Ends with the copy, or before, and then the partial file is not touched any more. Errors: EINTR; EHOSTUNREACH silence. */
  async #watch(
    blob: BlobAddress,
    copying: Promise<CopyOutcome>,
    state: CopyState,
    signal: AbortSignal,
    onProgress: DownloadOptions['onProgress'],
  ): Promise<CopyOutcome> {
    const { idleTimeoutMs } = this.#options;
    let timer: NodeJS.Timeout | undefined;
    let onAbort = () => {};
    const givenUp = new Promise<never>((_resolve, reject) => {
      let steps = state.steps;
      let aliveAtMs = performance.now();
      timer = setInterval(() => {
        // Without a thread it waits its turn, unless all of them may hang.
        const now = performance.now();
        if (state.steps !== steps || (!state.isStarted && this.#hanging === 0)) {
          steps = state.steps;
          aliveAtMs = now;
          onProgress?.(state.copiedBytes);
        } else if (!state.isStarted || now - aliveAtMs > idleTimeoutMs) reject(this.#silent(blob));
      }, PROGRESS_INTERVAL_MS);
      onAbort = () => reject(aborted());
      signal.addEventListener('abort', onAbort, { once: true });
      if (signal.aborted) onAbort();
    });
    try {
      return await Promise.race([copying, givenUp]);
    } catch (error) {
      const ended = copying.then(
        () => undefined,
        () => undefined,
      );
      if (!state.abandon()) await ended;
      if (!signal.aborted) {
        this.#hanging += 1;
        void ended.finally(() => {
          this.#hanging -= 1;
        });
      }
      if (error instanceof TmaxError) throw error;
      const message = `no thread could copy ${blob.path} from ${this.name}: ${messageOf(error)}`;
      throw new TmaxError('EIO', message, { cause: error, source: this.name, level: 'error' });
    } finally {
      clearInterval(timer);
      signal.removeEventListener('abort', onAbort);
    }
  }

  #silent({ path }: BlobAddress): TmaxError {
    const seconds = this.#options.idleTimeoutMs / 1000;
    const message = `${path} can't be had from ${this.name}: its disk has not answered for ${seconds} s`;
    return new TmaxError('EHOSTUNREACH', message, { source: this.name });
  }

  #startedPool(): Piscina<CopyJob, CopyOutcome> {
    this.#pool ??= startPool<CopyJob, CopyOutcome>({
      filename: fileURLToPath(new URL('./copy-thread.js', import.meta.url)),
      minThreads: 0,
      maxThreads: Math.min(MAX_COPY_THREADS, availableParallelism()),
      idleTimeout: IDLE_THREADS_MS,
    });
    return this.#pool;
  }
}
