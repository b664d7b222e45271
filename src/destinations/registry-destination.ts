/**
 * A repository of an OCI registry as a destination. Nodes can't agree there whose turn it is: those that want an absent blob at one
 * moment all fetch it, and the first to be done uploads it.
 */

import type { Piscina } from 'piscina';
import { messageOf, TmaxError } from '../errors.js';
import type { HttpSettings } from '../sources/http-client.js';
import { fromPlainError } from '../sources/plain-error.js';
import type { Registry } from '../sources/registry.js';
import type { BlobAddress } from '../sources/source.js';
import { endThreads } from '../thread-end.js';
import type { Destination, PutOptions } from './destination.js';
import type { PushJob, PushOutcome } from './push-thread.js';
import { startThreads } from './threads.js';

export interface RegistryDestinationOptions {
  readonly http: HttpSettings;
  /** `user:password` in base64, for the moment; undefined where nobody has logged in. */
  readonly secret: () => Promise<string | undefined>;
}

/** Uploads at one time. */
const MAX_PUSH_THREADS = 2;

export class RegistryDestination implements Destination {
  readonly name: string;
  readonly #registry: Registry;
  readonly #options: RegistryDestinationOptions;
  readonly #closing = new AbortController();
  #pool: Piscina<PushJob, PushOutcome> | undefined;

  /** No thread is started before something is asked. */
  constructor(registry: Registry, options: RegistryDestinationOptions) {
    this.name = registry.shown;
    this.#registry = registry;
    this.#options = options;
  }

  async has(blob: BlobAddress, signal: AbortSignal): Promise<boolean> {
    return (await this.#run('look', blob, '', signal)) === 'there';
  }

  /** What a registry has it has hashed itself: it is not replaced. */
  async put(blob: BlobAddress, path: string, { signal }: PutOptions): Promise<'written' | 'there'> {
    return (await this.#run('push', blob, path, signal)) === 'written' ? 'written' : 'there';
  }

  async close(): Promise<void> {
    this.#closing.abort();
    const pool = this.#pool;
    this.#pool = undefined;
    if (pool !== undefined) await endThreads(() => pool.destroy());
  }

  async #run(kind: PushJob['kind'], blob: BlobAddress, path: string, signal: AbortSignal) {
    const end = AbortSignal.any([signal, this.#closing.signal]);
    const secret = await this.#options.secret();
    if (end.aborted) throw this.#calledOff();
    const { sha256, sizeBytes, path: name } = blob;
    const { http } = this.#options;
    const job = { kind, registry: this.#registry, http, secret, blob: { sha256, sizeBytes, path: name }, path };
    let outcome: PushOutcome;
    try {
      // One job a thread: what is called off ends with its thread.
      outcome = await this.#startedPool().run(job, { signal: end });
    } catch (cause) {
      if (end.aborted) throw this.#calledOff();
      throw new TmaxError('EIO', `${name} could not be uploaded to ${this.name}: ${messageOf(cause)}`, {
        cause,
        source: this.name,
        level: 'error',
      });
    }
    if (outcome.kind === 'failed') throw fromPlainError(outcome.error);
    return outcome.kind;
  }

  #calledOff(): TmaxError {
    return new TmaxError('EINTR', `what was to be uploaded to ${this.name} was called off`, { source: this.name });
  }

  #startedPool(): Piscina<PushJob, PushOutcome> {
    this.#pool ??= startThreads<PushJob, PushOutcome>('./push-thread.js', { maxThreads: MAX_PUSH_THREADS });
    return this.#pool;
  }
}
