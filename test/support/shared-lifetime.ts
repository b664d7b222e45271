/** The lifetime of what several tests of a file share. */

import type { Lifetime } from './temporary.js';

export class SharedLifetime implements Lifetime {
  readonly #undo: (() => unknown)[] = [];

  readonly teardown = (undo: () => unknown): void => void this.#undo.push(undo);

  /** Undoes all, the last first; for `test.after.always`. */
  async end(): Promise<void> {
    for (const undo of this.#undo.splice(0).reverse()) await undo();
  }
}
