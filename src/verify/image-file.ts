/**
 * The descriptor through which an image is judged: never of a symbolic link, and where several threads judge one image,
 * of the one file (`identity`): what was proven is what is published. Reads are synchronous; they happen in a thread.
 *
 * A file may be judged while it grows, from front to back, if its end is known already: what lies between the two is
 * `NotThereYet`.
 */

import { createHash } from 'node:crypto';
import { closeSync, fstatSync, read, readSync, type Stats } from 'node:fs';
import { promisify } from 'node:util';
import { messageOf, TmaxError } from '../errors.js';
import { openReadOnly } from '../read-only-file.js';
import type { Pace } from './pace.js';

const HASH_CHUNK_BYTES = 1 << 20;
const readAsync = promisify(read);

/** A file that is still being written. */
export interface GrowingFile {
  /** What it will measure. */
  readonly sizeBytes: number;
  /** Its last bytes. */
  readonly tail: SharedArrayBuffer;
}

/** Thrown by reads of a growing file that reach beyond what has been written. */
export class NotThereYet extends Error {}

export class ImageFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** Changes with the file behind the path, and unless it grows with its content, as far as its attributes tell. */
  readonly identity: string;
  readonly #descriptor: number;
  readonly #tail: Buffer | undefined;

  private constructor(path: string, descriptor: number, status: Stats, growing: GrowingFile | undefined) {
    this.path = path;
    this.#descriptor = descriptor;
    this.#tail = growing === undefined ? undefined : Buffer.from(growing.tail);
    this.sizeBytes = growing?.sizeBytes ?? status.size;
    this.identity = growing === undefined ? wholeIdentity(status) : growingIdentity(status);
  }

  /** Errors: EIO it can't be opened, is a symbolic link, is not a regular file, or not the one with that identity. */
  static open(
    path: string,
    { identity, growing }: { readonly identity?: string; readonly growing?: GrowingFile | undefined } = {},
  ): ImageFile {
    let descriptor: number;
    try {
      // O_NONBLOCK: a FIFO in the image's place must not block the open; it means nothing to a regular file.
      descriptor = openReadOnly(path);
    } catch (error) {
      throw localFailure(path, 'open', error);
    }
    try {
      const status = fstatSync(descriptor);
      if (!status.isFile()) {
        throw new TmaxError('EIO', `${path} is not a regular file; remove it`, { source: 'verify' });
      }
      if (identity === undefined || [wholeIdentity(status), growingIdentity(status)].includes(identity)) {
        return new ImageFile(path, descriptor, status, growing);
      }
      const words = `${path} was replaced while it was verified; nothing else may write there`;
      throw new TmaxError('EIO', words, { source: 'verify' });
    } catch (error) {
      closeSync(descriptor);
      throw error instanceof TmaxError ? error : localFailure(path, 'examine', error);
    }
  }

  /** The bytes [offset, offset + length), which the caller has found to lie in the file. Errors: EIO; `NotThereYet`. */
  read(offsetBytes: number, lengthBytes: number): Buffer {
    const buffer = Buffer.allocUnsafe(lengthBytes);
    this.readInto(buffer, offsetBytes);
    return buffer;
  }

  /** Fills the whole buffer from `offsetBytes`. Errors: EIO, also if the file ends before (it shrank); `NotThereYet`. */
  readInto(buffer: Buffer, offsetBytes: number): void {
    if (this.#tail === undefined) {
      this.#readFile(buffer, offsetBytes);
      return;
    }
    const tailStart = this.sizeBytes - this.#tail.length;
    const before = Math.max(0, Math.min(buffer.length, tailStart - offsetBytes));
    this.#readFile(buffer.subarray(0, before), offsetBytes);
    // Copying nothing from before the tail's first byte is an error too.
    if (before < buffer.length) this.#tail.copy(buffer, before, offsetBytes + before - tailStart);
  }

  #readFile(buffer: Buffer, offsetBytes: number): void {
    let done = 0;
    while (done < buffer.length) {
      let count: number;
      try {
        count = readSync(this.#descriptor, buffer, done, buffer.length - done, offsetBytes + done);
      } catch (error) {
        throw localFailure(this.path, 'read', error);
      }
      if (count === 0) {
        if (this.#tail !== undefined) throw new NotThereYet();
        throw new TmaxError('EIO', `${this.path} shrank while it was read; nothing else may write to it`, {
          source: 'verify',
        });
      }
      done += count;
    }
  }

  /** 64 hex digits over the whole file. Errors: EIO, EINTR. */
  async sha256(pace: Pace): Promise<string> {
    const hash = createHash('sha256');
    const chunk = Buffer.allocUnsafe(Math.min(HASH_CHUNK_BYTES, this.sizeBytes));
    for (let at = 0; at < this.sizeBytes; at += chunk.length) {
      const part = chunk.subarray(0, Math.min(chunk.length, this.sizeBytes - at));
      this.readInto(part, at);
      hash.update(part);
      if (pace.due) await pace.turn();
    }
    return hash.digest('hex');
  }

  close(): void {
    closeSync(this.#descriptor);
  }
}

/** Whether the file's last bytes are these. Reads without blocking: the caller need not be a thread. Errors: EIO. */
export async function fileEndsIn(path: string, tail: SharedArrayBuffer): Promise<boolean> {
  let descriptor: number | undefined;
  try {
    descriptor = openReadOnly(path);
    const expected = Buffer.from(tail);
    const found = Buffer.allocUnsafe(expected.length);
    const start = fstatSync(descriptor).size - expected.length;
    if (start < 0) return false;
    for (let done = 0; done < found.length; ) {
      const { bytesRead } = await readAsync(descriptor, found, done, found.length - done, start + done);
      if (bytesRead === 0) return false;
      done += bytesRead;
    }
    return found.equals(expected);
  } catch (error) {
    throw localFailure(path, 'read', error);
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

function wholeIdentity({ dev, ino, size, mtimeMs }: Stats): string {
  return ['whole', dev, ino, size, mtimeMs].join(':');
}

function growingIdentity({ dev, ino }: Stats): string {
  return ['growing', dev, ino].join(':');
}

function localFailure(path: string, verb: string, error: unknown): TmaxError {
  return new TmaxError('EIO', `can't ${verb} ${path} to verify it: ${messageOf(error)}`, {
    cause: error,
    source: 'verify',
    level: 'error',
  });
}
