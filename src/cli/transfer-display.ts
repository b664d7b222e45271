/** How far a command is that brings many images: a bar on a terminal, a line now and then into a file or a pipe. */

import { SingleBar } from 'cli-progress';
import { counted } from '../counted.js';
import { formatBytes } from '../daemon/amount.js';
import { TmaxError } from '../errors.js';

interface Progress {
  readonly blobs: number;
  readonly readyBlobs: number;
  readonly bytes: number;
  readonly readyBytes: number;
}

export interface TransferDisplay {
  show(progress: Progress): void;
  /** A line of its own. */
  tell(line: string): void;
  close(): void;
}

/** How often a line is written where nobody watches a terminal. */
const LINE_INTERVAL_MS = 10_000;

/** On standard error. */
export function transferDisplay(): TransferDisplay {
  return process.stderr.isTTY ? new Bar() : new Lines();
}

/** On a terminal: a bar that is drawn over and over. */
class Bar implements TransferDisplay {
  readonly #bar = new SingleBar({
    format: '{bar} {percentage}%  {ready} of {size}  {readyBlobs}/{blobs} images  {rate}/s  {eta_formatted} left',
    stream: process.stderr,
    hideCursor: false,
  });
  readonly #rate = new Rate();
  #isDrawn = false;

  show(progress: Progress): void {
    const { bytes, readyBytes } = progress;
    const words = {
      ...progress,
      ready: formatBytes(readyBytes),
      size: formatBytes(bytes),
      rate: formatBytes(this.#rate.bytesPerSecond(readyBytes)),
    };
    if (this.#isDrawn) this.#bar.update(readyBytes, words);
    else this.#bar.start(bytes, readyBytes, words);
    this.#isDrawn = true;
  }

  tell(line: string): void {
    process.stderr.write(`\r\u001b[K${line}\n`);
  }

  close(): void {
    this.#bar.stop();
  }
}

/** Into a file or a pipe: a line now and then. */
class Lines implements TransferDisplay {
  readonly #rate = new Rate();
  #writtenAtMs = Number.NEGATIVE_INFINITY;

  show({ bytes, readyBytes, blobs, readyBlobs }: Progress): void {
    const now = performance.now();
    const bytesPerSecond = this.#rate.bytesPerSecond(readyBytes);
    if (now - this.#writtenAtMs < LINE_INTERVAL_MS) return;
    this.#writtenAtMs = now;
    const left = bytesPerSecond > 0 ? `${Math.round((bytes - readyBytes) / bytesPerSecond)} s left` : 'no estimate yet';
    const ready = `${formatBytes(readyBytes)} of ${formatBytes(bytes)}, ${readyBlobs.toLocaleString('en-US')} of ${counted(blobs, 'image')}`;
    this.tell(`${ready}, ${formatBytes(bytesPerSecond)}/s, ${left}`);
  }

  tell(line: string): void {
    process.stderr.write(`${line}\n`);
  }

  close(): void {}
}

/** Bytes a second since the first figure: what was there before has not been fetched. */
class Rate {
  #first: { readonly atMs: number; readonly bytes: number } | undefined;

  bytesPerSecond(bytes: number): number {
    const atMs = performance.now();
    this.#first ??= { atMs, bytes };
    const seconds = (atMs - this.#first.atMs) / 1000;
    return seconds > 0 ? Math.max(0, Math.round((bytes - this.#first.bytes) / seconds)) : 0;
  }
}

/** What to throw where a transfer has ended in an error: that, or EINTR with how to go on where its user has called it off. */
export function asCalledOff(error: unknown, signal: AbortSignal): unknown {
  if (!signal.aborted) return error;
  const words = 'ended before all was there; what has arrived stays: run it again to go on';
  return new TmaxError('EINTR', words, { cause: error, source: 'cli' });
}
