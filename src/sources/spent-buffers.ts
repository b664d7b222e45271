/**
 * Gives back the memory of bytes that have been written. It lies outside V8's heap, which hardly counts it: left to
 * itself, V8 lets some 64 MB of such buffers gather in each thread before it looks.
 */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Looked for after so many bytes: a look takes less than a millisecond, since hardly anything is left alive. */
const INTERVAL_BYTES = 8 * 1024 * 1024;

export class SpentBuffers {
  readonly #collect: (options: { readonly type: 'minor' }) => void;
  #spentBytes = 0;

  constructor() {
    setFlagsFromString('--expose-gc');
    this.#collect = runInNewContext('gc');
  }

  /** So many bytes more have been received and written by this thread. */
  spend(bytes: number): void {
    this.#spentBytes += bytes;
    if (this.#spentBytes < INTERVAL_BYTES) return;
    this.#spentBytes = 0;
    this.#collect({ type: 'minor' });
  }
}
