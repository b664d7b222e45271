/** How fast the bytes of each running fetch come in, over the last seconds: what an operator judges a wait by. */

/** A rate is taken over this time. */
const WINDOW_MS = 10_000;
/** Progress is noted this often at most, so that a window has at most twenty notes. */
const NOTE_INTERVAL_MS = 500;

interface Note {
  readonly atMs: number;
  readonly bytes: number;
}

/** One download under way. */
export interface Transfer {
  /** Takes how many bytes are on disk by now; returns how many have come since the last call, 0 for the first. */
  progress(onDiskBytes: number): number;
  /** In all, as far as `progress` was told. */
  readonly receivedBytes: number;
  end(): void;
}

export class TransferRates {
  readonly #transfers = new Map<string, RunningTransfer>();
  readonly #now: () => number;

  /** `now`: milliseconds of a clock that never goes back. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  begin(sha256: string): Transfer {
    const transfer = new RunningTransfer(this.#now, () => {
      if (this.#transfers.get(sha256) === transfer) this.#transfers.delete(sha256);
    });
    this.#transfers.set(sha256, transfer);
    return transfer;
  }

  /** Undefined where nothing of that blob comes, or none can tell yet. */
  bytesPerSecond(sha256: string): number | undefined {
    return this.#transfers.get(sha256)?.bytesPerSecond();
  }
}

class RunningTransfer implements Transfer {
  receivedBytes = 0;
  readonly end: () => void;
  readonly #now: () => number;
  #lastBytes: number | undefined;
  readonly #notes: Note[] = [];

  constructor(now: () => number, end: () => void) {
    this.#now = now;
    this.end = end;
  }

  progress(onDiskBytes: number): number {
    // What is on disk becomes less where it is begun anew.
    const cameBytes = Math.max(0, onDiskBytes - (this.#lastBytes ?? onDiskBytes));
    this.#lastBytes = onDiskBytes;
    this.receivedBytes += cameBytes;
    const atMs = this.#now();
    const last = this.#notes.at(-1);
    if (last === undefined || atMs - last.atMs >= NOTE_INTERVAL_MS) {
      this.#notes.push({ atMs, bytes: this.receivedBytes });
      this.#forgetBefore(atMs - WINDOW_MS);
    }
    return cameBytes;
  }

  bytesPerSecond(): number | undefined {
    const nowMs = this.#now();
    this.#forgetBefore(nowMs - WINDOW_MS);
    const [first] = this.#notes;
    if (first === undefined || nowMs - first.atMs < NOTE_INTERVAL_MS) return undefined;
    return Math.round((this.receivedBytes - first.bytes) / ((nowMs - first.atMs) / 1000));
  }

  /** The last before the window stays: from there on it is counted. */
  #forgetBefore(beginMs: number): void {
    while ((this.#notes[1]?.atMs ?? Number.POSITIVE_INFINITY) <= beginMs) this.#notes.shift();
  }
}
