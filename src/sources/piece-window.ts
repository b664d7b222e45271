/**
 * The rest of a file, handed out in pieces, front to back, and put together again in order.
 *
 * The first unfinished piece (the head) goes straight to the file; those after it wait in memory, at most one per
 * connection. So the file stays a prefix, its digest needs no second reading, and memory is bounded by the window.
 */

import type { PartialFile } from './partial-file.js';

export interface Piece {
  /** Offsets in the whole file; `end` is not part of it. */
  readonly start: number;
  readonly end: number;
  /** How much of it has come. */
  received: number;
  /** What came before its turn. */
  waiting: Buffer[];
}

export class PieceWindow {
  /** The size of every piece but the last. */
  readonly pieceBytes: number;
  readonly #file: PartialFile;
  readonly #sizeBytes: number;
  readonly #maxPieces: number;
  /** Handed out and unfinished, or finished before their turn; in order of their place. */
  readonly #pieces: Piece[] = [];
  #nextStart: number;
  #onRetired: (() => void)[] = [];

  constructor(file: PartialFile, sizeBytes: number, pieceBytes: number, maxPieces: number) {
    this.#file = file;
    this.#sizeBytes = sizeBytes;
    this.pieceBytes = pieceBytes;
    this.#maxPieces = maxPieces;
    this.#nextStart = file.acceptedBytes;
  }

  /** Pieces handed out and not yet complete in the file. */
  get outstanding(): number {
    return this.#pieces.length;
  }

  get hasMore(): boolean {
    return this.#nextStart < this.#sizeBytes;
  }

  /** The next piece, as soon as the window has room for it; undefined when all are handed out. */
  async take(signal: AbortSignal): Promise<Piece | undefined> {
    while (this.outstanding >= this.#maxPieces && !signal.aborted) await this.#retirement(signal);
    if (!this.hasMore || signal.aborted) return undefined;
    const start = this.#nextStart;
    const end = Math.min(start + this.pieceBytes, this.#sizeBytes);
    this.#nextStart = end;
    const piece: Piece = { start, end, received: 0, waiting: [] };
    this.#pieces.push(piece);
    return piece;
  }

  /** Takes the next bytes of a piece. Result and errors: as `PartialFile.append`. */
  put(piece: Piece, chunk: Buffer): Promise<void> | undefined {
    piece.received += chunk.length;
    if (piece !== this.#pieces[0]) {
      piece.waiting.push(chunk);
      return undefined;
    }
    let patience = this.#file.append(chunk);
    while (this.#pieces[0] !== undefined && isComplete(this.#pieces[0])) patience = this.#retireHead() ?? patience;
    return patience;
  }

  /** The head leaves, and what its successor has in store goes to the file. */
  #retireHead(): Promise<void> | undefined {
    this.#pieces.shift();
    const head = this.#pieces[0];
    const stored = head?.waiting ?? [];
    if (head !== undefined) head.waiting = [];
    let patience: Promise<void> | undefined;
    for (const chunk of stored) patience = this.#file.append(chunk) ?? patience;
    const waiters = this.#onRetired;
    this.#onRetired = [];
    for (const wake of waiters) wake();
    return patience;
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
