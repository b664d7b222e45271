/** The way back from whatever was started. */

import type { Logger } from 'pino';
import { messageOf } from '../errors.js';

/** What was started, to be closed in reverse. */
export class Closers {
  readonly #log: Logger;
  readonly #closers: (() => Promise<void> | void)[] = [];

  constructor(log: Logger) {
    this.#log = log;
  }

  add(close: () => Promise<void> | void): void {
    this.#closers.push(close);
  }

  async close(): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) {
      try {
        await close();
      } catch (error) {
        this.#log.error({ reason: messageOf(error) }, 'a part of the daemon could not be closed');
      }
    }
  }
}
