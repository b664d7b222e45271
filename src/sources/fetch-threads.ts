/**
 * The fetch threads, seen from the main thread: transfers go in, downloads come out.
 *
 * Threads are shared out by `piscina` (the least busy takes the next transfer, a dead one is replaced); a transfer is
 * called off by a message, since `piscina` would kill the thread and every other transfer in it.
 *
 * Threads are there only while there is work: they start with the first transfer, and end when none has come for a while.
 */

import { setMaxListeners } from 'node:events';
import { fileURLToPath } from 'node:url';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import { messageOf, TmaxError } from '../errors.js';
import { startPool } from '../thread-pool.js';
import type { RetryNote } from './blob-transfer.js';
import { aborted } from './failure.js';
import type { FetchJob, FetchOutcome, FetchThreadData, ToMain, ToThread } from './fetch-protocol.js';
import { IDLE_THREADS_MS } from './limits.js';
import type { Patience } from './patience.js';
import { fromPlainError, plainError } from './plain-error.js';
import type { BlobAddress, Download } from './source.js';

export interface FetchHooks {
  /** Requests for bytes at one time. */
  readonly connections: number;
  readonly patience: Patience;
  readonly signal: AbortSignal;
  readonly secret: () => Promise<string | undefined>;
  readonly onProgress: ((receivedBytes: number) => void) | undefined;
  readonly onTail: ((bytes: SharedArrayBuffer) => void) | undefined;
  readonly onRetry: (note: RetryNote) => void;
}

const THREAD_FILE = fileURLToPath(new URL('./fetch-thread.js', import.meta.url));
/** Transfers per thread: as many as are asked for at once; who asks has a bound. */
const TRANSFERS_PER_THREAD = 1024;

/** Threads that may die under one transfer: it goes on in another, since what is on disk stays, unless it is what they die of. */
const MAX_DEATHS = 3;

/** What nobody has caught in a thread ends it, and every transfer in it. */
class ThreadDied extends TmaxError {}

export interface FetchThreadsOptions {
  readonly threads: number;
  /** Default `IDLE_THREADS_MS`. */
  readonly idleMs?: number | undefined;
  /** Told of a thread that dies, by each transfer that was in it, or once where there was none; it is replaced. */
  readonly onDeath: (error: unknown) => void;
}

export class FetchThreads {
  readonly #data: FetchThreadData;
  readonly #options: FetchThreadsOptions;
  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<unknown>>();
  #pool: Piscina<FetchJob, FetchOutcome> | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #ending: Promise<void> = Promise.resolve();

  constructor(data: FetchThreadData, options: FetchThreadsOptions) {
    this.#data = data;
    this.#options = options;
    setMaxListeners(0, this.#closing.signal);
  }

  /** Threads there are now. */
  get threadCount(): number {
    return this.#pool?.threads.length ?? 0;
  }

  /** Errors: as `Source.download`; EIO where one thread after the other dies of it. */
  async run(blob: BlobAddress, partialPath: string, hooks: FetchHooks): Promise<Download> {
    for (let deaths = 0; ; ) {
      try {
        // The last bytes are shown once at most, and then they may have been.
        return await this.#runOnce(blob, partialPath, deaths === 0 ? hooks : { ...hooks, onTail: undefined });
      } catch (error) {
        if (!(error instanceof ThreadDied)) throw error;
        deaths += 1;
        this.#options.onDeath(error.cause);
        if (deaths === MAX_DEATHS) throw error;
        hooks.onRetry({ attempt: deaths, waitMs: 0, reason: error.message });
      }
    }
  }

  /** Errors: as `Source.download`; ThreadDied. */
  async #runOnce(blob: BlobAddress, partialPath: string, hooks: FetchHooks): Promise<Download> {
    if (hooks.signal.aborted || this.#closing.signal.aborted) throw aborted();
    const { port1: port, port2: threadPort } = new MessageChannel();
    const post = (message: ToThread): void => port.postMessage(message);
    const signal = AbortSignal.any([hooks.signal, this.#closing.signal]);
    const onAbort = (): void => post({ type: 'abort' });
    signal.addEventListener('abort', onAbort, { once: true });
    port.on('message', (message: ToMain) => receive(message, hooks, port, this.#data.name));
    const { connections, patience } = hooks;
    const task = this.#startedPool().run(
      { blob, partialPath, connections, patience, wantsTail: hooks.onTail !== undefined, port: threadPort },
      { transferList: [threadPort] },
    );
    const ended = task.finally(() => {
      signal.removeEventListener('abort', onAbort);
      port.close();
    });
    const settled = ended.then(
      () => {},
      () => {},
    );
    this.#running.add(settled);
    try {
      const outcome = await ended;
      if ('error' in outcome) throw fromPlainError(outcome.error);
      hooks.onProgress?.(outcome.download.sizeBytes);
      return outcome.download;
    } catch (error) {
      if (error instanceof TmaxError) throw error;
      const message = `the thread that was fetching ${blob.path} died: ${messageOf(error)}`;
      throw new ThreadDied('EIO', message, { cause: error, source: this.#data.name, level: 'error' });
    } finally {
      this.#running.delete(settled);
      if (this.#running.size === 0) this.#idleTimer = setTimeout(() => this.#end(), this.#idleMs).unref();
    }
  }

  /** Calls off every transfer, waits for what it has in hand, and ends the threads. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#running);
    this.#end();
    await this.#ending;
  }

  get #idleMs(): number {
    return this.#options.idleMs ?? IDLE_THREADS_MS;
  }

  #startedPool(): Piscina<FetchJob, FetchOutcome> {
    clearTimeout(this.#idleTimer);
    if (this.#pool !== undefined) return this.#pool;
    const { threads, onDeath } = this.#options;
    this.#pool = startPool({
      filename: THREAD_FILE,
      minThreads: threads,
      maxThreads: threads,
      concurrentTasksPerWorker: TRANSFERS_PER_THREAD,
      maxQueue: TRANSFERS_PER_THREAD,
      workerData: this.#data,
    });
    this.#pool.on('error', onDeath);
    return this.#pool;
  }

  #end(): void {
    clearTimeout(this.#idleTimer);
    const pool = this.#pool;
    this.#pool = undefined;
    if (pool !== undefined) this.#ending = Promise.all([this.#ending, pool.destroy()]).then(() => undefined);
  }
}

function receive(
  message: ToMain,
  { onProgress, onTail, onRetry, secret }: FetchHooks,
  port: MessagePort,
  name: string,
): void {
  switch (message.type) {
    case 'progress':
      onProgress?.(message.receivedBytes);
      return;
    case 'tail':
      onTail?.(message.bytes);
      return;
    case 'retry':
      onRetry(message.note);
      return;
    case 'secret-wanted': {
      const post = (answer: ToThread): void => port.postMessage(answer);
      secret().then(
        (value) => post({ type: 'secret', secret: value }),
        (error: unknown) => post({ type: 'no-secret', error: plainError(error, name) }),
      );
    }
  }
}
