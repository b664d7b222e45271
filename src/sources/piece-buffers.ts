/**
 * Memory for pieces that come before their turn, used again and again by the transfers of one thread. Left to V8, a buffer that has
 * lived through a few requests is given back late, and tens of them gather.
 *
 * Whoever gives one back writes and reads it no more.
 */

/** Kept for the next piece; a thread seldom holds more at one time. */
const MAX_IDLE = 8;

export class PieceBuffers {
  readonly #idle: Buffer[] = [];

  /** Of that length; its content is whatever was there before. */
  take(lengthBytes: number): Buffer {
    const at = this.#idle.findIndex((buffer) => buffer.length === lengthBytes);
    const [found] = at < 0 ? [] : this.#idle.splice(at, 1);
    return found ?? Buffer.allocUnsafeSlow(lengthBytes);
  }

  give(buffer: Buffer): void {
    if (this.#idle.length === MAX_IDLE) this.#idle.shift();
    this.#idle.push(buffer);
  }

  /** Keeps none: nobody is about to take one. */
  clear(): void {
    this.#idle.length = 0;
  }
}
