/** What is undone at the end of a bench, in reverse. */

import type { Lifetime } from '../../test/support/temporary.js';

export class BenchLifetime implements Lifetime {
  readonly #undo: (() => unknown)[] = [];

  readonly teardown = (undo: () => unknown): void => void this.#undo.push(undo);

  async end(): Promise<void> {
    for (const undo of this.#undo.splice(0).reverse()) await undo();
  }
}
