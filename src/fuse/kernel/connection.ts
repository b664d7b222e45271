/**
 * An opened /dev/fuse at work: the reading threads, the session on the main thread, and the way between them.
 *
 * Owns the device's descriptor. It is closed after the last reading thread has ended, and a reading thread ends only
 * when the kernel ends the connection (unmounted with nothing open any more, or aborted).
 */

import { closeSync, writeSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import type { Logger } from 'pino';
import { systemErrorCode, TmaxError } from '../../errors.js';
import type { FileSystem } from '../../filesystem/contract.js';
import type { Negotiated } from '../protocol/negotiation.js';
import { opcodeName } from '../protocol/requests.js';
import { AdaptivePolling } from './adaptive-polling.js';
import { HIGH_DESCRIPTORS, LOWEST_HANDLE } from './high-descriptors.js';
import { createMailboxMemory, Doorbell, Mailbox } from './mailbox.js';
import { Passthrough } from './passthrough.js';
import type { ReaderData, ReaderMessage } from './reader.js';
import { Session } from './session.js';
import { wantsToStop } from './signals.js';

/** How many messages are handled before timers and sockets of the process get their turn. */
const MESSAGES_PER_TURN = 256;
/** How long the kernel may take to open the conversation. */
const INIT_LIMIT_MS = 30_000;

export interface ConnectionOptions {
  /** Descriptor of /dev/fuse, already mounted; owned by the connection from here on. */
  readonly device: number;
  readonly fileSystem: FileSystem;
  readonly readThreads: number;
  /** Whether to ask the kernel to read cache files by itself. */
  readonly passthrough: boolean;
  readonly log: Logger;
}

export class Connection {
  /** Resolves with what was agreed at INIT. Errors: ENOTSUP the kernel is too old, ETIMEDOUT it says nothing. */
  readonly ready: Promise<Negotiated>;
  /** Resolves when the kernel has ended the connection and everything held for it has been given back. */
  readonly ended: Promise<void>;
  readonly session: Session;
  readonly #device: number;
  readonly #log: Logger;
  readonly #readThreads: number;
  /** Each resolves when its thread has ended. */
  readonly #readers: Promise<void>[] = [];
  readonly #mailboxes: Mailbox[] = [];
  readonly #doorbellMemory = Doorbell.createMemory();
  readonly #doorbell = new Doorbell(this.#doorbellMemory);
  readonly #polling = new AdaptivePolling();
  readonly #passthrough: Passthrough;

  constructor(options: ConnectionOptions) {
    this.#device = options.device;
    this.#log = options.log;
    this.#readThreads = Math.max(1, options.readThreads);
    this.#passthrough = new Passthrough(options.device, options.log, () => this.#startReaders(this.#readThreads));
    let settleInit: (outcome: Negotiated | TmaxError) => void = () => undefined;
    const init = new Promise<Negotiated>((resolve, reject) => {
      settleInit = (outcome) => (outcome instanceof TmaxError ? reject(outcome) : resolve(outcome));
    });
    this.session = this.#createSession(options, settleInit);
    this.#doorbell.prepareToSleep();
    // With passthrough there is no READ, and one thread carries all else as fast as several.
    this.#startReaders(1);
    this.ended = this.#allReadersEnded().then(() => this.#end());
    this.ready = firstOf(init, this.ended);
  }

  /** Whether files opened now are passed through. */
  get passthrough(): boolean {
    return this.#passthrough.enabled;
  }

  /** Requests so far, by the name of their opcode. */
  get requests(): Readonly<Record<string, number>> {
    const requests: Record<string, number> = {};
    for (const { counts } of this.#mailboxes) {
      for (let opcode = 0; opcode < counts.length; opcode += 1) {
        const count = counts[opcode] ?? 0;
        const name = opcodeName(opcode);
        if (count > 0) requests[name] = (requests[name] ?? 0) + count;
      }
    }
    return requests;
  }

  #createSession(options: ConnectionOptions, onInit: (outcome: Negotiated | TmaxError) => void): Session {
    return new Session({
      fileSystem: options.fileSystem,
      send: (reply) => this.#send(reply),
      descriptors: HIGH_DESCRIPTORS,
      backing: this.#passthrough,
      passthrough: options.passthrough,
      wantsToStop,
      onInit: (outcome) => {
        if (!(outcome instanceof TmaxError)) {
          if (outcome.passthrough) this.#passthrough.enable();
          else this.#startReaders(this.#readThreads);
        }
        onInit(outcome);
      },
      log: options.log,
    });
  }

  /** Starts as many as are missing. */
  #startReaders(count: number): void {
    while (this.#readers.length < count) {
      const mailbox = createMailboxMemory();
      this.#mailboxes.push(new Mailbox(mailbox));
      const doorbell = this.#doorbellMemory;
      this.#readers.push(this.#startReader({ device: this.#device, mailbox, doorbell, lowestHandle: LOWEST_HANDLE }));
    }
  }

  /** More may be started while these are waited for. */
  async #allReadersEnded(): Promise<void> {
    for (const reader of this.#readers) await reader;
  }

  /** Resolves when the thread has ended. */
  #startReader(data: ReaderData): Promise<void> {
    const worker = new Worker(new URL('./reader.js', import.meta.url), {
      workerData: data,
      name: 'tmaxfs-reader',
      env: {},
      execArgv: [],
      trackUnmanagedFds: false,
    });
    worker.on('message', (message: ReaderMessage) => {
      if (message === 'mail') this.#wake();
      else this.#log.error({ reason: message.readError }, 'a file of the cache could not be read');
    });
    worker.on('error', (error) => this.#log.error({ err: error }, 'a reading thread failed'));
    return new Promise((resolve) => {
      worker.once('exit', () => resolve());
    });
  }

  #wake(): void {
    this.#polling.wakes();
    this.#handleMail();
  }

  #handleMail(): void {
    for (const mailbox of this.#mailboxes) mailbox.take(MESSAGES_PER_TURN, (message) => this.session.handle(message));
    if (this.#hasMail() || this.#polling.poll(() => this.#hasMail())) {
      setImmediate(() => this.#handleMail());
      return;
    }
    this.#polling.sleeps();
    this.#doorbell.prepareToSleep();
    // What came between the last look and going to sleep has not rung, or has: then its 'mail' message is on its way.
    if (this.#hasMail() && this.#doorbell.takeSleep()) setImmediate(() => this.#handleMail());
  }

  #hasMail(): boolean {
    return this.#mailboxes.some((mailbox) => !mailbox.isEmpty);
  }

  #send(reply: Buffer): boolean {
    try {
      writeSync(this.#device, reply);
      return true;
    } catch (error) {
      // ENOENT: the kernel no longer waits for this reply. ENODEV, ECONNABORTED: the connection is over.
      const code = systemErrorCode(error);
      if (code !== 'ENOENT' && code !== 'ENODEV' && code !== 'ECONNABORTED') {
        this.#log.error({ err: error, lengthBytes: reply.length }, 'the kernel did not accept a reply');
      }
      return false;
    }
  }

  #end(): void {
    this.session.close();
    closeSync(this.#device);
  }
}

/** INIT, unless the connection ends before it (no reading thread could be started) or it takes too long. */
async function firstOf(init: Promise<Negotiated>, ended: Promise<void>): Promise<Negotiated> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    const message = `the kernel has not opened the conversation on /dev/fuse within ${INIT_LIMIT_MS / 1000} s`;
    timer = setTimeout(() => reject(new TmaxError('ETIMEDOUT', message, { source: 'kernel' })), INIT_LIMIT_MS);
  });
  const early = ended.then(() => {
    throw new TmaxError('ENOTCONN', 'the mount ended before it could be used; the log says more', { source: 'kernel' });
  });
  return Promise.race([init, early, limit]).finally(() => clearTimeout(timer));
}
