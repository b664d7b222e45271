/**
 * The rest of a file, handed out in pieces, front to back, and put together again in order.
 *
 * The first unfinished piece (the head) goes straight to the file; those after it wait in memory, at most one per
 * connection. So the file stays a prefix, its digest needs no second reading, and memory is bounded by the window: what
 * waits is copied, since a server may send it in chunks that each take many times their bytes.
 *
 * One piece may go before all others, the tail: it waits in memory for its turn at the end, and is shown to whoever
 * wants to know the last bytes early.
 */

import type { PartialFile } from './partial-file.js';

export interface Piece {
  /** Offsets in the whole file; `end` is not part of it. */
  readonly start: number;
  readonly end: number;
  /** How much of it has come. */
  received: number;
  /** Room for all of it, once something has come before its turn. */
  held: Buffer | undefined;
}

/** The last bytes of the file, where they are to come first. */
export interface Tail {
  /** Less than what is missing of the file. */
  readonly bytes: number;
  /** Told when all of them have come before their turn, once. */
  readonly onComplete: (bytes: SharedArrayBuffer) => void;
}

export interface PieceWindowOptions {
  /** Of the whole file. */
  readonly sizeBytes: number;
  readonly pieceBytes: number;
  /** Besides the tail. */
  readonly maxPieces: number;
  readonly tail?: Tail | undefined;
}

export class PieceWindow {
  readonly #file: PartialFile;
  readonly #pieceBytes: number;
  readonly #maxPieces: number;
  /** Where the pieces end, and the tail begins. */
  readonly #end: number;
  readonly #startedAt: number;
  readonly #tail: Tail | undefined;
  /** Until its turn has come. */
  #tailPiece: Piece | undefined;
  /** Where that is held, so that other threads can read it; until it was shown. */
  #tailBytes: SharedArrayBuffer | undefined;
  #isTailTaken = false;
  /** Handed out and unfinished, or finished before their turn; in order of their place. */
  readonly #pieces: Piece[] = [];
  #nextStart: number;
  #onRetired: (() => void)[] = [];

  constructor(file: PartialFile, { sizeBytes, pieceBytes, maxPieces, tail }: PieceWindowOptions) {
    this.#file = file;
    this.#pieceBytes = pieceBytes;
    this.#maxPieces = maxPieces;
    this.#startedAt = file.acceptedBytes;
    this.#nextStart = file.acceptedBytes;
    this.#end = sizeBytes - (tail?.bytes ?? 0);
    this.#tail = tail;
    if (tail !== undefined) {
      this.#tailBytes = new SharedArrayBuffer(tail.bytes);
      this.#tailPiece = { start: this.#end, end: sizeBytes, received: 0, held: Buffer.from(this.#tailBytes) };
    }
  }

  /** Pieces handed out and not yet complete in the file, besides the tail. */
  get outstanding(): number {
    return this.#pieces.length;
  }

  get hasMore(): boolean {
    return (this.#tailPiece !== undefined && !this.#isTailTaken) || this.#nextStart < this.#end;
  }

  /** Whether a server that sends the whole file sends more than one piece. */
  get hasSeveralPieces(): boolean {
    return this.#tail !== undefined || this.#end - this.#startedAt > this.#pieceBytes;
  }

  /** The next piece, as soon as the window has room for it; undefined when all are handed out. */
  async take(signal: AbortSignal): Promise<Piece | undefined> {
    if (this.#tailPiece !== undefined && !this.#isTailTaken) {
      this.#isTailTaken = true;
      return this.#tailPiece;
    }
    while (this.outstanding >= this.#maxPieces && !signal.aborted) await this.#retirement(signal);
    if (this.#nextStart >= this.#end || signal.aborted) return undefined;
    const start = this.#nextStart;
    const end = Math.min(start + this.#pieceBytes, this.#end);
    this.#nextStart = end;
    const piece: Piece = { start, end, received: 0, held: undefined };
    this.#pieces.push(piece);
    return piece;
  }

  /** Takes the next bytes of a piece. Result and errors: as `PartialFile.append`. */
  put(piece: Piece, chunk: Buffer): Promise<void> | undefined {
    if (piece !== this.#pieces[0]) {
      piece.held ??= Buffer.allocUnsafeSlow(piece.end - piece.start);
      piece.held.set(chunk, piece.received);
      piece.received += chunk.length;
      if (piece === this.#tailPiece && isComplete(piece)) this.#showTail();
      return undefined;
    }
    piece.received += chunk.length;
    let patience = this.#file.append(chunk);
    while (this.#pieces[0] !== undefined && isComplete(this.#pieces[0])) patience = this.#retireHead() ?? patience;
    return patience;
  }

  /** The head leaves, and what its successor has in store goes to the file. */
  #retireHead(): Promise<void> | undefined {
    this.#pieces.shift();
    if (this.#pieces.length === 0 && this.#nextStart === this.#end && this.#tailPiece !== undefined) {
      this.#pieces.push(this.#tailPiece);
      this.#tailPiece = undefined;
    }
    const head = this.#pieces[0];
    const held = head?.held?.subarray(0, head.received);
    if (head !== undefined) head.held = undefined;
    const patience = held === undefined || held.length === 0 ? undefined : this.#file.append(held);
    const waiters = this.#onRetired;
    this.#onRetired = [];
    for (const wake of waiters) wake();
    return patience;
  }

  /** What waits for its turn is what is shown: it is held once. */
  #showTail(): void {
    if (this.#tailBytes !== undefined) this.#tail?.onComplete(this.#tailBytes);
    this.#tailBytes = undefined;
  }

  #retirement(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal.removeEventListener('abort', wake);
        resolve();
      };
      signal.addEventListener('abort', wake, { once: true });
      this.#onRetired.push(wake);
    });
  }
}

export function isComplete({ start, end, received }: Piece): boolean {
  return received === end - start;
}
