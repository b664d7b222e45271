/**
 * Carries the kernel's messages from the reading threads to the main thread, through shared memory.
 *
 * One mailbox per reading thread: a ring of slots with one writer and one reader, so no locks; each side moves its own
 * counter only. All mailboxes share one doorbell: the main thread sets it before it goes to sleep, and the first
 * message after that rings (one `postMessage`). A main thread that is busy is not rung, and finds the messages itself.
 * Bounded: where the ring is full, the reading thread waits.
 */

/** The longest message that is passed on whole. Longer ones (values of SETXATTR) end in EROFS and need no more. */
export const MAX_MESSAGE_BYTES = 1024;
/** How many messages may wait in one mailbox. */
const SLOTS = 1024;
/** How long a full mailbox is waited for before the reading thread looks again. */
const FULL_WAIT_MS = 1000;

/** Positions in the control words. The counters wrap around at 32 bits. */
const WRITTEN = 0;
const TAKEN = 1;
const FIRST_LENGTH = 2;
const CONTROL_BYTES = (FIRST_LENGTH + SLOTS) * Int32Array.BYTES_PER_ELEMENT;

/** Opcodes below this are counted one by one, all others under the last place. */
const COUNTERS = 64;

/** Shared memory, as it is handed to a thread. */
export interface MailboxMemory {
  readonly slots: SharedArrayBuffer;
  /** Requests read from the kernel, by opcode: written by the reading thread, for statistics. */
  readonly counters: SharedArrayBuffer;
}

export function createMailboxMemory(): MailboxMemory {
  return {
    slots: new SharedArrayBuffer(CONTROL_BYTES + SLOTS * MAX_MESSAGE_BYTES),
    counters: new SharedArrayBuffer(COUNTERS * Float64Array.BYTES_PER_ELEMENT),
  };
}

/** The shared word that says whether the main thread sleeps. */
export class Doorbell {
  readonly #asleep: Int32Array;

  constructor(memory: SharedArrayBuffer) {
    this.#asleep = new Int32Array(memory);
  }

  static createMemory(): SharedArrayBuffer {
    return new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  }

  /** The main thread is about to sleep; it must look into all mailboxes once more after this. */
  prepareToSleep(): void {
    Atomics.store(this.#asleep, 0, 1);
  }

  /** Takes the sleep away: true for the one caller that has to wake (or stay) up. */
  takeSleep(): boolean {
    return Atomics.exchange(this.#asleep, 0, 0) === 1;
  }
}

export class Mailbox {
  readonly #control: Int32Array;
  readonly #data: Buffer;
  readonly #counters: Float64Array;

  constructor(memory: MailboxMemory) {
    this.#control = new Int32Array(memory.slots, 0, FIRST_LENGTH + SLOTS);
    this.#data = Buffer.from(memory.slots, CONTROL_BYTES);
    this.#counters = new Float64Array(memory.counters);
  }

  /** Counts a request (reading thread only). */
  count(opcode: number): void {
    const place = Math.min(opcode, COUNTERS - 1);
    this.#counters[place] = (this.#counters[place] ?? 0) + 1;
  }

  /** Requests read so far, by opcode; the last place holds all opcodes from there on. */
  get counts(): ArrayLike<number> {
    return this.#counters;
  }

  /** Adds a message (reading thread only); waits while the mailbox is full. */
  put(message: Buffer): void {
    const written = Atomics.load(this.#control, WRITTEN);
    for (;;) {
      const taken = Atomics.load(this.#control, TAKEN);
      if (((written - taken) | 0) < SLOTS) break;
      Atomics.wait(this.#control, TAKEN, taken, FULL_WAIT_MS);
    }
    const slot = slotOf(written);
    const length = Math.min(message.length, MAX_MESSAGE_BYTES);
    message.copy(this.#data, slot * MAX_MESSAGE_BYTES, 0, length);
    this.#control[FIRST_LENGTH + slot] = length;
    Atomics.store(this.#control, WRITTEN, (written + 1) | 0);
  }

  get isEmpty(): boolean {
    return Atomics.load(this.#control, WRITTEN) === Atomics.load(this.#control, TAKEN);
  }

  /** Hands each waiting message to `handle`, at most `limit` (main thread only). The bytes are valid during the call. */
  take(limit: number, handle: (message: Buffer) => void): void {
    for (let count = 0; count < limit && !this.isEmpty; count += 1) {
      const taken = Atomics.load(this.#control, TAKEN);
      const slot = slotOf(taken);
      const start = slot * MAX_MESSAGE_BYTES;
      handle(this.#data.subarray(start, start + (this.#control[FIRST_LENGTH + slot] ?? 0)));
      Atomics.store(this.#control, TAKEN, (taken + 1) | 0);
      Atomics.notify(this.#control, TAKEN);
    }
  }
}

/** SLOTS is a power of two, so the slot survives the counter's wrap-around. */
function slotOf(counter: number): number {
  return counter & (SLOTS - 1);
}
