/**
 * One blob, from where it lies into its partial file: located once, fetched in ranges over one or several connections,
 * resumed after every fault from where it broke. What tells one kind of source from another is in its `BlobLocation`.
 *
 * Nothing here trusts what arrives; what can't be the blob is refused as early as headers allow it, and the rest is
 * for the digest to tell.
 */

import { TmaxError } from '../errors.js';
import type { BlobLocation } from './blob-location.js';
import { aborted, TransientFailure } from './failure.js';
import type { BodySink, HttpReply } from './http-client.js';
import { MIN_PIECES_FOR_EARLY_TAIL, PIECE_BYTES, type RetrySettings, TAIL_SHARE } from './limits.js';
import { PartialFile } from './partial-file.js';
import { isComplete, type Piece, PieceWindow, type Tail } from './piece-window.js';
import { type Contestant, raceIfSilent } from './race.js';
import { leadingBytes } from './range-reply.js';
import { Attempts } from './retry.js';
import type { BlobAddress, Download } from './source.js';

/** A failed attempt, for the log. */
export interface RetryNote {
  readonly attempt: number;
  readonly waitMs: number;
  readonly reason: string;
}

export interface BlobTransferOptions {
  readonly location: BlobLocation;
  readonly retry: RetrySettings;
  /** Requests for bytes at one time. */
  readonly connections: number;
  /** Silence after which a range is asked for a second time. */
  readonly raceAfterMs: number;
  /** Default `PIECE_BYTES`. */
  readonly pieceBytes?: number | undefined;
  readonly signal: AbortSignal;
  readonly onProgress?: ((receivedBytes: number) => void) | undefined;
  /** Given the last bytes as soon as they have come, once; without it they come last. */
  readonly onTail?: ((bytes: SharedArrayBuffer) => void) | undefined;
  readonly onRetry?: ((note: RetryNote) => void) | undefined;
}

/** Thrown where the server sends the whole file to each of several connections that want a part. */
class RangesIgnored extends TmaxError {}
/** Thrown to end a body that goes on after the last byte that was wanted. */
class Enough extends TmaxError {}

/** Errors: see `Source.download`. */
export async function transferBlob(
  blob: BlobAddress,
  partialPath: string,
  options: BlobTransferOptions,
): Promise<Download> {
  const { signal, onProgress } = options;
  const file = await PartialFile.open(partialPath, { sizeBytes: blob.sizeBytes, signal, onWritten: onProgress });
  const transfer = new BlobTransfer(blob, file, options);
  try {
    await transfer.run();
  } catch (error) {
    // What the disk said counts more than what it made of the transfer.
    await file.close();
    throw error;
  }
  await file.close();
  const { resumedBytes } = file;
  return { sizeBytes: blob.sizeBytes, sha256: file.digest(), resumedBytes, attempts: transfer.requests };
}

class BlobTransfer {
  /** Requests for bytes so far. */
  requests = 0;
  readonly #blob: BlobAddress;
  readonly #file: PartialFile;
  readonly #options: BlobTransferOptions;
  readonly #startedAt = performance.now();
  /** Over all connections, in any order: what counts as progress. */
  #receivedBytes = 0;
  /** Seen to be so: from then on one connection takes all. */
  #rangesIgnored = false;
  #hasToldTail = false;

  constructor(blob: BlobAddress, file: PartialFile, options: BlobTransferOptions) {
    this.#blob = blob;
    this.#file = file;
    this.#options = options;
  }

  async run(): Promise<void> {
    while (this.#file.acceptedBytes < this.#blob.sizeBytes) {
      try {
        await this.#fetchRest();
      } catch (error) {
        if (!(error instanceof RangesIgnored)) throw error;
        this.#rangesIgnored = true;
      }
    }
  }

  /** Everything that is missing; the connection that fails for good ends the others. */
  async #fetchRest(): Promise<void> {
    const { sizeBytes } = this.#blob;
    const { pieceBytes = PIECE_BYTES, signal: called } = this.#options;
    const pieces = Math.ceil((sizeBytes - this.#file.acceptedBytes) / pieceBytes);
    const connections = this.#rangesIgnored ? 1 : Math.min(this.#options.connections, pieces);
    const stop = new AbortController();
    const signal = AbortSignal.any([called, stop.signal]);
    const window = new PieceWindow(this.#file, {
      sizeBytes,
      pieceBytes: connections === 1 ? sizeBytes : pieceBytes,
      maxPieces: connections,
      tail: this.#earlyTail(pieceBytes),
    });
    let failure: unknown;
    const fetchPieces = async (): Promise<void> => {
      try {
        for (let piece = await window.take(signal); piece !== undefined; piece = await window.take(signal)) {
          await this.#fetchWithRetries(window, piece, signal);
        }
      } catch (error) {
        failure ??= error;
        stop.abort();
      }
    };
    await Promise.all(Array.from({ length: connections }, fetchPieces));
    if (called.aborted) throw aborted();
    if (failure !== undefined) throw failure;
  }

  /** Which of the last bytes are to come first, if any. */
  #earlyTail(pieceBytes: number): Tail | undefined {
    const { sizeBytes } = this.#blob;
    const { onTail } = this.#options;
    const tailBytes = Math.min(pieceBytes, Math.ceil(sizeBytes * TAIL_SHARE));
    const leftBytes = sizeBytes - this.#file.acceptedBytes;
    if (onTail === undefined || this.#hasToldTail || this.#rangesIgnored) return undefined;
    if (sizeBytes < MIN_PIECES_FOR_EARLY_TAIL * pieceBytes || leftBytes <= tailBytes) return undefined;
    const onComplete = (bytes: SharedArrayBuffer): void => {
      this.#hasToldTail = true;
      onTail(bytes);
    };
    return { bytes: tailBytes, onComplete };
  }

  async #fetchWithRetries(window: PieceWindow, piece: Piece, signal: AbortSignal): Promise<void> {
    const { retry, onRetry } = this.#options;
    const attempts = new Attempts({
      settings: retry,
      signal,
      startedAt: this.#startedAt,
      progress: () => this.#receivedBytes,
      onRetry: ({ message }, attempt, waitMs) => onRetry?.({ attempt, waitMs, reason: message }),
    });
    await attempts.run(() => this.#fetchPiece(window, piece, signal));
  }

  /** What is missing of a piece, by one request, or by a second beside it where the first falls silent. */
  async #fetchPiece(window: PieceWindow, piece: Piece, signal: AbortSignal): Promise<void> {
    if (isComplete(piece)) return;
    const { raceAfterMs: silenceMs, onRetry } = this.#options;
    const onSecond = (): void => {
      const reason = `${this.#blob.path}: nothing came for ${silenceMs} ms: asked a second time, whoever answers first goes on`;
      onRetry?.({ attempt: 0, waitMs: 0, reason });
    };
    await raceIfSilent((contestant) => this.#request(window, piece, contestant, signal), {
      silenceMs,
      signal,
      onSecond,
    });
    if (isComplete(piece)) return;
    const missing = piece.end - piece.start - piece.received;
    const host = (await this.#options.location.url(signal)).host;
    throw new TransientFailure('EHOSTUNREACH', `${host} ended the answer ${missing} bytes early`);
  }

  async #request(window: PieceWindow, piece: Piece, contestant: Contestant, transfer: AbortSignal): Promise<void> {
    // Others share what is asked here: it must not end with the one that asked first.
    const { location } = this.#options;
    const url = await location.url(transfer);
    const start = piece.start + piece.received;
    this.requests += 1;
    try {
      const { reply } = await location.get({
        url,
        headers: { range: `bytes=${start}-${piece.end - 1}` },
        signal: contestant.signal,
        onSend: () => contestant.sent(),
        onReply: (answer) => this.#sinkFor(answer, window, piece, start, contestant),
      });
      if (reply.status !== 200 && reply.status !== 206) throw await location.refusal(reply, url);
    } catch (error) {
      if (!(error instanceof Enough)) throw error;
    }
  }

  #sinkFor(
    reply: HttpReply,
    window: PieceWindow,
    piece: Piece,
    start: number,
    contestant: Contestant,
  ): BodySink | undefined {
    if (reply.status !== 200 && reply.status !== 206) return undefined;
    const { path, sizeBytes } = this.#blob;
    let skip = leadingBytes(reply, { start, end: piece.end, sizeBytes }, path);
    if (reply.status === 200 && window.hasSeveralPieces) {
      throw new RangesIgnored('EBADMSG', `${path}: ranges are ignored`);
    }
    return (chunk) => {
      contestant.heard();
      const wanted = chunk.subarray(Math.min(skip, chunk.length));
      skip -= chunk.length - wanted.length;
      const taken = wanted.subarray(0, piece.end - piece.start - piece.received);
      if (taken.length === 0) {
        if (wanted.length > 0) throw new Enough('EBADMSG', `${path}: more bytes than wanted`);
        return undefined;
      }
      this.#receivedBytes += taken.length;
      const patience = window.put(piece, taken);
      if (patience !== undefined) contestant.hold(patience);
      return patience;
    };
  }
}
