/** A daemon's blob cache in a process of its own, to be told what to do and to be killed: several share one directory. */

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { CapacityLimits } from '../../src/blobs/capacity.js';
import type { Lifetime } from './temporary.js';

/** What the process is asked for. Blobs are named by the seed of their content. */
export type Order =
  | { readonly kind: 'open'; readonly seed: string; readonly sizeBytes: number }
  | { readonly kind: 'release'; readonly seed: string }
  /** Fetches stop half-way from now on. */
  | { readonly kind: 'hold' }
  | { readonly kind: 'letGo' };

export type Answer = { readonly errno?: string; readonly message?: string };

export interface CacheProcessOptions {
  readonly root: string;
  readonly limits: CapacityLimits;
  /** By a group. */
  readonly isShared?: boolean;
}

export class CacheProcess {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, (answer: Answer) => void>();
  readonly #halfWay = new Map<string, () => void>();
  #orders = 0;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on('message', (message: { id?: number; answer?: Answer; halfWay?: string }) => {
      if (message.id !== undefined) this.#waiting.get(message.id)?.(message.answer ?? {});
      if (message.halfWay !== undefined) this.#halfWay.get(message.halfWay)?.();
    });
  }

  /** Resolves once it has looked at the directory. `wrapper`: a command that runs another, and its arguments. */
  static async start(
    t: Lifetime,
    options: CacheProcessOptions,
    wrapper: readonly string[] = [],
  ): Promise<CacheProcess> {
    const child = fork(
      fileURLToPath(new URL('shared-cache-process-child.js', import.meta.url)),
      [JSON.stringify(options)],
      {
        ...(wrapper[0] === undefined
          ? {}
          : { execPath: wrapper[0], execArgv: [...wrapper.slice(1), process.execPath] }),
      },
    );
    t.teardown(() => void child.kill('SIGKILL'));
    const started = new CacheProcess(child);
    await Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(() => Promise.reject(new Error('the cache process did not start'))),
    ]);
    return started;
  }

  /** Opens a blob, and holds it: undefined, or the errno that the open ended in. */
  async open(seed: string, sizeBytes: number): Promise<string | undefined> {
    return (await this.#order({ kind: 'open', seed, sizeBytes })).errno;
  }

  async release(seed: string): Promise<void> {
    await this.#order({ kind: 'release', seed });
  }

  /** Begins to open a blob and returns once half of it is on disk, where its fetch stops; then what ends the open. */
  async openHalf(seed: string, sizeBytes: number): Promise<() => Promise<string | undefined>> {
    await this.#order({ kind: 'hold' });
    const halfWay = new Promise<void>((resolve) => this.#halfWay.set(seed, resolve));
    const opening = this.open(seed, sizeBytes);
    await halfWay;
    return async () => {
      await this.#order({ kind: 'letGo' });
      return await opening;
    };
  }

  /** Ends it as a crash would. */
  async kill(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }

  #order(order: Order): Promise<Answer> {
    this.#orders += 1;
    const id = this.#orders;
    this.#child.send({ id, order });
    return new Promise((resolve) => this.#waiting.set(id, resolve));
  }
}
