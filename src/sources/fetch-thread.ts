/**
 * A fetch thread: TLS, hashing and writing of many transfers at once, away from the thread that answers the kernel.
 *
 * Loaded by `fetch-threads.ts` alone. Transfers of one thread share its connections; each has its own port to the main
 * thread, for its secret, its progress and its end.
 */

import { type MessagePort, workerData } from 'node:worker_threads';
import { workBehind } from '../scheduling.js';
import { transferBlob } from './blob-transfer.js';
import type { FetchJob, FetchOutcome, FetchThreadData, ToMain, ToThread } from './fetch-protocol.js';
import { HttpClient } from './http-client.js';
import { PROGRESS_INTERVAL_MS } from './limits.js';
import { createLocator, type Locator } from './locator.js';
import type { PatienceSettings } from './patience.js';
import { fromPlainError, plainError } from './plain-error.js';
import { RateGovernor } from './rate-governor.js';
import { SpentBuffers } from './spent-buffers.js';

workBehind();
const data: FetchThreadData = workerData;
const governor = new RateGovernor(data.governorMemory);
const locators = new Map<PatienceSettings, Locator>();
const spentBuffers = new SpentBuffers();

/** One transfer, from its job to its outcome. Never rejects. */
export default async function fetchBlob({
  blob,
  partialPath,
  connections,
  patience,
  wantsTail,
  port,
}: FetchJob): Promise<FetchOutcome> {
  const link = new MainThread(port);
  const settings = data.patience[patience];
  const { retry, raceAfterMs } = settings;
  let writtenBytes: number | undefined;
  try {
    const download = await transferBlob(blob, partialPath, {
      location: locatorFor(settings).locate(blob, () => link.secret()),
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
    return { error: plainError(error, data.name) };
  } finally {
    link.close();
  }
}

/** Connections have their deadlines for good: those of transfers with another patience are apart, and made when first needed. */
function locatorFor(settings: PatienceSettings): Locator {
  const { http, retry } = settings;
  const tools = () => ({ client: new HttpClient(http), governor, maxPauseMs: retry.maxPauseMs });
  const locator = locators.get(settings) ?? createLocator(data.locator, tools());
  locators.set(settings, locator);
  return locator;
}

/** The main thread, as one transfer sees it. */
class MainThread {
  readonly #port: MessagePort;
  readonly #controller = new AbortController();
  readonly #wanting: { resolve(secret: string | undefined): void; reject(error: Error): void }[] = [];
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

  secret(): Promise<string | undefined> {
    return new Promise((resolve, reject) => {
      this.#wanting.push({ resolve, reject });
      this.post({ type: 'secret-wanted' });
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
    // All who wait want the secret of the moment: which answer is whose does not matter.
    const first = this.#wanting.shift();
    if (message.type === 'secret') first?.resolve(message.secret);
    else first?.reject(fromPlainError(message.error));
  }
}
