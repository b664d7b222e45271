/**
 * A file that grows from front to back, and the digest of what it holds.
 *
 * Invariant: at every moment the file is a prefix of what was appended, so that whatever ends a transfer (an abort, a
 * crash, a full disk) leaves something to resume from. Hashing and writing overlap: bytes are hashed when they are
 * appended, and written behind, several pieces per system call, a bounded amount at most being under way.
 */

import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { diskError } from '../disk-error.js';
import { TmaxError } from '../errors.js';
import { aborted } from './failure.js';
import { MAX_UNWRITTEN_BYTES, MAX_UNWRITTEN_CHUNKS, READ_BACK_BYTES } from './limits.js';

/** Created for its owner alone, never followed through a link that someone else may have put there. */
const OPEN_FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW;
const OPEN_MODE = 0o600;

export interface PartialFileOptions {
  /** What the whole will measure; a file that is already longer is begun anew. */
  readonly sizeBytes: number;
  readonly signal: AbortSignal;
  /** Called with the length of the file whenever it has grown. */
  readonly onWritten?: ((bytes: number) => void) | undefined;
}

export class PartialFile {
  /** What was there when it was opened. */
  readonly resumedBytes: number;
  readonly #handle: FileHandle;
  readonly #hash = createHash('sha256');
  readonly #onWritten: ((bytes: number) => void) | undefined;
  #acceptedBytes: number;
  #writtenBytes: number;
  #pending: Buffer[] = [];
  #writing: Promise<void> | undefined;
  #failure: TmaxError | undefined;

  private constructor(handle: FileHandle, resumedBytes: number, onWritten: ((bytes: number) => void) | undefined) {
    this.#handle = handle;
    this.resumedBytes = resumedBytes;
    this.#acceptedBytes = resumedBytes;
    this.#writtenBytes = resumedBytes;
    this.#onWritten = onWritten;
  }

  /** Reads what is there, for its digest. Errors: EINTR aborted; ENOSPC, EIO of the disk. */
  static async open(path: string, { sizeBytes, signal, onWritten }: PartialFileOptions): Promise<PartialFile> {
    const handle = await open(path, OPEN_FLAGS, OPEN_MODE).catch((error: unknown) => {
      throw diskError(error, `can't open the partial file ${path}`);
    });
    try {
      const status = await handle.stat();
      if (!status.isFile())
        throw new TmaxError('EIO', `the partial file ${path} is not a regular file`, { source: 'cache' });
      if (status.size > sizeBytes) await handle.truncate(0);
      const file = new PartialFile(handle, status.size > sizeBytes ? 0 : status.size, onWritten);
      await file.#readBack(signal);
      return file;
    } catch (error) {
      await handle.close();
      throw error instanceof TmaxError ? error : diskError(error, `can't read the partial file ${path}`);
    }
  }

  /** Bytes appended so far, those that were there included; on disk once `close` has resolved. */
  get acceptedBytes(): number {
    return this.#acceptedBytes;
  }

  /**
   * Takes the next bytes. A promise, which never rejects, asks for patience: append again once it has resolved.
   * Errors: ENOSPC, EIO of the disk, for earlier bytes; then for ever.
   */
  append(chunk: Buffer): Promise<void> | undefined {
    if (this.#failure !== undefined) throw this.#failure;
    this.#hash.update(chunk);
    this.#acceptedBytes += chunk.length;
    this.#pending.push(chunk);
    this.#writing ??= this.#write();
    const isBehind = this.#acceptedBytes - this.#writtenBytes > MAX_UNWRITTEN_BYTES;
    return isBehind || this.#pending.length > MAX_UNWRITTEN_CHUNKS ? this.#writing : undefined;
  }

  /** The digest of all that was appended, and of what was there before; to be asked for once. */
  digest(): string {
    return this.#hash.digest('hex');
  }

  /** Waits for what is being written. Errors: ENOSPC, EIO of the disk. */
  async close(): Promise<void> {
    await this.#writing;
    await this.#handle.close().catch((error: unknown) => {
      this.#failure ??= diskError(error, "can't close a partial file");
    });
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Writes until nothing is pending. Never rejects: `#failure` tells. */
  async #write(): Promise<void> {
    try {
      while (this.#pending.length > 0) {
        const chunks = this.#pending;
        this.#pending = [];
        await this.#writeAll(chunks);
        this.#onWritten?.(this.#writtenBytes);
      }
    } catch (error) {
      this.#failure = diskError(error, "can't write a partial file");
      this.#pending = [];
    }
    this.#writing = undefined;
  }

  async #writeAll(chunks: readonly Buffer[]): Promise<void> {
    let left = chunks;
    while (left.length > 0) {
      // Linux takes at most 1,024 pieces in one call.
      const { bytesWritten } = await this.#handle.writev(left.slice(0, 1024), this.#writtenBytes);
      this.#writtenBytes += bytesWritten;
      left = without(left, bytesWritten);
    }
  }

  async #readBack(signal: AbortSignal): Promise<void> {
    const buffer = Buffer.allocUnsafe(Math.min(READ_BACK_BYTES, this.resumedBytes));
    for (let at = 0; at < this.resumedBytes; ) {
      if (signal.aborted) throw aborted();
      const { bytesRead } = await this.#handle.read(buffer, 0, Math.min(buffer.length, this.resumedBytes - at), at);
      if (bytesRead === 0) throw new TmaxError('EIO', 'a partial file shrank while it was read', { source: 'cache' });
      this.#hash.update(buffer.subarray(0, bytesRead));
      at += bytesRead;
    }
  }
}

/** What is left of the chunks once their first bytes are written. */
function without(chunks: readonly Buffer[], bytes: number): readonly Buffer[] {
  let skip = bytes;
  for (const [index, chunk] of chunks.entries()) {
    if (skip < chunk.length)
      return skip === 0 ? chunks.slice(index) : [chunk.subarray(skip), ...chunks.slice(index + 1)];
    skip -= chunk.length;
  }
  return [];
}
