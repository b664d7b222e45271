/**
 * Keeps long synchronous work interruptible: between two steps it lets the event loop turn, so that an abort (which
 * arrives as an event) is seen. Costs a clock reading per step.
 */

import { setImmediate } from 'node:timers/promises';
import { TmaxError } from '../errors.js';

/** How long a proof computes before it looks for an abort. One step may add as much as one data block takes. */
const TURN_INTERVAL_MS = 20;

export class Pace {
  readonly #signal: AbortSignal | undefined;
  #lastTurnMs = performance.now();

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }

  get due(): boolean {
    return performance.now() - this.#lastTurnMs >= TURN_INTERVAL_MS;
  }

  /** Lets pending events happen. Errors: EINTR aborted. */
  async turn(): Promise<void> {
    await setImmediate();
    if (this.#signal?.aborted === true) throw interrupted();
    this.#lastTurnMs = performance.now();
  }
}

export function interrupted(): TmaxError {
  return new TmaxError('EINTR', 'the verification was interrupted; the image was not judged', {
    source: 'verify',
    level: 'debug',
  });
}
