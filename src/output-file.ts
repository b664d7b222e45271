/** A file that appears whole, or not at all: written under another name beside it, synced, then renamed. */

import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { type FileHandle, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { messageOf, systemErrorCode, TmaxError } from './errors.js';

const DEFAULT_MODE = 0o666;
/** Who ends the command shall find no half of a file. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export interface OutputOptions {
  readonly input?: string;
  /** Default: what the user's umask makes of 0666. */
  readonly mode?: number;
}

export class OutputFile {
  readonly #path: string;
  readonly #temporary: string;
  readonly #file: FileHandle;
  readonly #onSignal: (signal: NodeJS.Signals) => void;

  private constructor(path: string, temporary: string, file: FileHandle) {
    this.#path = path;
    this.#temporary = temporary;
    this.#file = file;
    this.#onSignal = (signal) => {
      rmSync(temporary, { force: true });
      this.#forgetSignals();
      process.kill(process.pid, signal);
    };
    for (const signal of SIGNALS) process.on(signal, this.#onSignal);
  }

  /**
   * `input`: a file that it must not be. Errors: EINVAL it is the input, under whatever name, or no file; EACCES it can't be
   * written.
   */
  static async create(output: string, { input, mode = DEFAULT_MODE }: OutputOptions = {}): Promise<OutputFile> {
    const path = await realPath(resolve(output));
    const existing = await stat(path).catch(() => undefined);
    const read = input === undefined ? undefined : await stat(input);
    if (existing !== undefined && existing.dev === read?.dev && existing.ino === read.ino) {
      throw new TmaxError('EINVAL', `${output} is the input itself; name another file with --output`, {
        source: 'cli',
      });
    }
    if (existing !== undefined && !existing.isFile()) {
      throw new TmaxError('EINVAL', `${output} is no file; name one with --output`, { source: 'cli' });
    }
    const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}`);
    try {
      return new OutputFile(path, temporary, await open(temporary, 'wx', mode));
    } catch (cause) {
      const message = `${output} can't be written (${systemErrorCode(cause) ?? messageOf(cause)}); name another file with --output`;
      throw new TmaxError('EACCES', message, { cause, source: 'output' });
    }
  }

  /** Errors: ENOSPC and others of write(2). */
  async write(bytes: Buffer): Promise<void> {
    try {
      let written = 0;
      while (written < bytes.length) written += (await this.#file.write(bytes, written)).bytesWritten;
    } catch (cause) {
      throw failed(this.#path, cause);
    }
  }

  /** Has the file appear. */
  async commit(): Promise<void> {
    try {
      await this.#file.sync();
      await this.#file.close();
      await rename(this.#temporary, this.#path);
    } catch (cause) {
      throw failed(this.#path, cause);
    }
    this.#forgetSignals();
  }

  /** Leaves nothing behind. To be called in the place of `commit`. */
  async discard(): Promise<void> {
    await this.#file.close().catch(() => undefined);
    await rm(this.#temporary, { force: true });
    this.#forgetSignals();
  }

  #forgetSignals(): void {
    for (const signal of SIGNALS) process.off(signal, this.#onSignal);
  }
}

/** Free of links: the file behind a link is written, and the link stays. */
async function realPath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch {
    return path;
  }
}

function failed(path: string, cause: unknown): TmaxError {
  const code = systemErrorCode(cause);
  const message = `${path} can't be written: ${messageOf(cause)}`;
  return new TmaxError(code === 'ENOSPC' || code === 'EDQUOT' ? 'ENOSPC' : 'EIO', message, {
    cause,
    source: 'dataset',
  });
}
