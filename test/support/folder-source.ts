/** A source of images that lie in a folder, written by the same code as those of the Hub, in pieces that take their time. */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TmaxError } from '../../src/errors.js';
import { PartialFile } from '../../src/sources/partial-file.js';
import type { BlobAddress, Download, DownloadOptions, Source } from '../../src/sources/source.js';
import { SourceHealth } from '../../src/sources/source-health.js';

export class FolderSource implements Source {
  readonly name = 'folder';
  readonly health = new SourceHealth();
  readonly #folder: string;
  readonly #options: FolderSourceOptions;

  constructor(folder: string, options: FolderSourceOptions) {
    this.#folder = folder;
    this.#options = options;
  }

  async download(
    { path, sizeBytes, sha256 }: BlobAddress,
    partialPath: string,
    options: DownloadOptions,
  ): Promise<Download> {
    const { pieceBytes, onResumed } = this.#options;
    const { signal, onProgress } = options;
    const content = await readFile(join(this.#folder, path));
    const file = await PartialFile.open(partialPath, { sizeBytes, signal, onWritten: onProgress });
    onResumed?.(sha256, file.resumedBytes);
    try {
      for (let at = file.resumedBytes; at < sizeBytes; at = file.acceptedBytes) {
        if (signal.aborted) throw new TmaxError('EINTR', 'aborted', { source: this.name });
        await file.append(content.subarray(at, at + pieceBytes()));
        await nextTurn();
      }
    } finally {
      await file.close();
    }
    return { sizeBytes: file.acceptedBytes, sha256: file.digest(), resumedBytes: file.resumedBytes, attempts: 1 };
  }

  async close(): Promise<void> {}
}

export interface FolderSourceOptions {
  /** Size of the next piece, at least 1. */
  readonly pieceBytes: () => number;
  /** Told of every download what it found on disk. */
  readonly onResumed?: (sha256: string, resumedBytes: number) => void;
}
