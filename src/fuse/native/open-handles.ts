/** The files that are open through fuse-native, and the opens that wait. A handle is the descriptor of the cache file. */

import { read } from 'node:fs';
import { promisify } from 'node:util';
import { TmaxError } from '../../errors.js';
import type { FileSystem, InodeNumber, OpenFile } from '../../filesystem/contract.js';

const readFrom = promisify(read);

export class OpenHandles {
  readonly #fileSystem: FileSystem;
  /** Several opens of one file may share a descriptor, and then a handle. */
  readonly #files = new Map<number, OpenFile[]>();
  readonly #waiting = new Set<AbortController>();

  constructor(fileSystem: FileSystem) {
    this.#fileSystem = fileSystem;
  }

  get openCount(): number {
    let count = 0;
    for (const files of this.#files.values()) count += files.length;
    return count;
  }

  get waitingCount(): number {
    return this.#waiting.size;
  }

  /** Waits until the file is ready. Errors: those of the file system; ENOTCONN the mount was taken away meanwhile. */
  async open(inode: InodeNumber): Promise<number> {
    const controller = new AbortController();
    this.#waiting.add(controller);
    // libfuse knows who asks, but fuse-native does not tell.
    const caller = { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0, pid: 0 };
    try {
      const file = await this.#fileSystem.open(inode, { caller, signal: controller.signal });
      if (controller.signal.aborted) {
        file.close();
        throw unmounted();
      }
      const files = this.#files.get(file.descriptor) ?? [];
      files.push(file);
      this.#files.set(file.descriptor, files);
      return file.descriptor;
    } catch (error) {
      throw controller.signal.aborted ? unmounted() : error;
    } finally {
      this.#waiting.delete(controller);
    }
  }

  /** Fills `buffer` from `offset` on; returns how many bytes the file had. */
  async read(handle: number, buffer: Buffer, length: number, offset: number): Promise<number> {
    let filled = 0;
    while (filled < length) {
      const { bytesRead } = await readFrom(handle, buffer, filled, length - filled, offset + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return filled;
  }

  release(handle: number): void {
    const files = this.#files.get(handle);
    const file = files?.pop();
    if (files?.length === 0) this.#files.delete(handle);
    file?.close();
  }

  abandonWaiting(): void {
    for (const controller of this.#waiting) controller.abort();
  }

  /** The connection is over. */
  releaseAll(): void {
    this.abandonWaiting();
    for (const files of this.#files.values()) for (const file of files) file.close();
    this.#files.clear();
  }
}

function unmounted(): TmaxError {
  return new TmaxError('ENOTCONN', 'the mount was taken away', { source: 'kernel', level: 'debug' });
}
