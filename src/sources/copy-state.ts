/**
 * What a copying thread shares with whoever waits for it: how far it is, and whether it is still wanted.
 *
 * A thread may hang in a read of a disk that does not answer, and can't be called back from there. The partial file then
 * goes to another source: so a thread that was abandoned must never write again, whenever it wakes up. It says that it writes
 * before it looks whether it may; who abandons it says so before looking whether it writes. One of them sees the other.
 */

const WRITING = 0;
const ABANDONED = 1;
const STARTED = 2;
/** Signs of life, whatever they are. */
const STEPS = 3;
const WORDS_BYTES = 4 * Int32Array.BYTES_PER_ELEMENT;

/** Thrown in the thread: nobody wants its copy any more. */
export class Abandoned extends Error {
  override readonly name = 'Abandoned';
}

export class CopyState {
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array<SharedArrayBuffer>;
  readonly #copied: BigInt64Array<SharedArrayBuffer>;

  constructor(memory = new SharedArrayBuffer(WORDS_BYTES + BigInt64Array.BYTES_PER_ELEMENT)) {
    this.memory = memory;
    this.#words = new Int32Array(memory, 0, 4);
    this.#copied = new BigInt64Array(memory, WORDS_BYTES, 1);
  }

  /** For the thread: something has been done. Errors: Abandoned. */
  step(copiedBytes = this.copiedBytes): void {
    Atomics.store(this.#words, STARTED, 1);
    Atomics.add(this.#words, STEPS, 1);
    Atomics.store(this.#copied, 0, BigInt(copiedBytes));
    if (Atomics.load(this.#words, ABANDONED) === 1) throw new Abandoned();
  }

  /** For the thread: changes the partial file. Errors: Abandoned, with nothing changed; those of `act`. */
  write<Result>(act: () => Result): Result {
    Atomics.store(this.#words, WRITING, 1);
    try {
      if (Atomics.load(this.#words, ABANDONED) === 1) throw new Abandoned();
      return act();
    } finally {
      Atomics.store(this.#words, WRITING, 0);
    }
  }

  /** For who waits: the copy is not wanted. True: from now on the file is not touched. False: it is being written to right now. */
  abandon(): boolean {
    Atomics.store(this.#words, ABANDONED, 1);
    return Atomics.load(this.#words, WRITING) === 0;
  }

  get isStarted(): boolean {
    return Atomics.load(this.#words, STARTED) === 1;
  }

  get steps(): number {
    return Atomics.load(this.#words, STEPS);
  }

  get copiedBytes(): number {
    return Number(Atomics.load(this.#copied, 0));
  }
}
