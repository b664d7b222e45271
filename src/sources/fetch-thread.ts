/**
 * A fetch thread: TLS, hashing and writing of many transfers at once, away from the thread that answers the kernel.
 *
 * Loaded by `fetch-threads.ts` alone. Transfers of one thread share its connections; each has its own port to the main
 * thread, for its token, its progress and its end.
 */

import { type MessagePort, workerData } from 'node:worker_threads';
import { transferBlob } from './blob-transfer.js';
import type { FetchJob, FetchOutcome, FetchThreadData, ToMain, ToThread } from './fetch-protocol.js';
import { HttpClient } from './http-client.js';
import { HubHttp } from './hub-http.js';
import { PROGRESS_INTERVAL_MS } from './limits.js';
import { fromPlainError, plainError } from './plain-error.js';
import { RateGovernor } from './rate-governor.js';
import { SpentBuffers } from './spent-buffers.js';

const { endpoint, http, retry, raceAfterMs, governorMemory }: FetchThreadData = workerData;
const client = new HttpClient(http);
const governor = new RateGovernor(governorMemory);
const spentBuffers = new SpentBuffers();

/** One transfer, from its job to its outcome. Never rejects. */
export default async function fetchBlob({
  blob,
  partialPath,
  connections,
  wantsTail,
  port,
}: FetchJob): Promise<FetchOutcome> {
  const link = new MainThread(port);
  let writtenBytes: number | undefined;
  try {
    const hub = new HubHttp({ client, endpoint, token: () => link.token(), governor, maxPauseMs: retry.maxPauseMs });
    const download = await transferBlob(blob, partialPath, {
      http: hub,
      retry,
      connections,
      raceAfterMs,
      signal: link.signal,
      onProgress: (bytes) => {
        link.progress(bytes);
        spentBuffers.spend(bytes - (writtenBytes ?? bytes));
        writtenBytes = bytes;
      },
      onTail: wantsTail ? (bytes) => link.post({ type: 'tail', bytes }) : undefined,
      onRetry: (note) => link.post({ type: 'retry', note }),
    });
    return { download };
  } catch (error) {
    return { error: plainError(error) };
  } finally {
    link.close();
  }
}

/** The main thread, as one transfer sees it. */
class MainThread {
  readonly #port: MessagePort;
  readonly #controller = new AbortController();
  readonly #wanting: { resolve(token: string | undefined): void; reject(error: Error): void }[] = [];
  #progressTimer: NodeJS.Timeout | undefined;
  #receivedBytes = 0;

  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (message: ToThread) => this.#receive(message));
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  post(message: ToMain): void {
    this.#port.postMessage(message);
  }

  token(): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      this.#wanting.push({ resolve, reject });
      this.post({ type: 'token-wanted' });
    });
  }

  /** Tells the latest figure, once in a while. */
  progress(receivedBytes: number): void {
    this.#receivedBytes = receivedBytes;
    this.#progressTimer ??= setTimeout(() => {
      this.#progressTimer = undefined;
      this.post({ type: 'progress', receivedBytes: this.#receivedBytes });
    }, PROGRESS_INTERVAL_MS);
  }

  close(): void {
    clearTimeout(this.#progressTimer);
    this.#port.close();
  }

  #receive(message: ToThread): void {
    if (message.type === 'abort') {
      this.#controller.abort();
      for (const { resolve } of this.#wanting.splice(0)) resolve(undefined);
      return;
    }
    // All who wait want the token of the moment: which answer is whose does not matter.
    const first = this.#wanting.shift();
    if (message.type === 'token') first?.resolve(message.token);
    else first?.reject(fromPlainError(message.error));
  }
}
