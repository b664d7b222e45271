/**
 * A folder of lease files, for who has no locks of a kernel to agree by: a file for each holder, made before it is looked who else
 * has one. Of two that exclude each other at least the later one sees the other, so both may fail, and never both succeed.
 * A file counts for as long as its owner lives (heartbeat.ts), and is removed by whoever comes across it after that.
 */

import { createHash } from 'node:crypto';
import { closeSync, constants, openSync, readdirSync, rmSync, unlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { systemErrorCode } from '../errors.js';
import { Heartbeat } from './heartbeat.js';

export type LeaseMode = 'shared' | 'exclusive';

/** `<digest of the subject>.<mode>.<owner>.<number>`, in a folder named by the first two digits. */
const NAME = /^([0-9a-f]{32})\.(shared|exclusive)\.([0-9a-f]{16})\.\d+$/;
const OWNERS = 'owners';

export class LeaseFolder {
  readonly #folder: string;
  readonly #makeFolder: (path: string) => void;
  readonly #heartbeat: Heartbeat;
  #count = 0;

  /** Touches nothing until something is to be held. `makeFolder`: also makes what is missing above it. */
  constructor(folder: string, makeFolder: (path: string) => void) {
    this.#folder = folder;
    this.#makeFolder = makeFolder;
    this.#heartbeat = new Heartbeat(join(folder, OWNERS), makeFolder);
  }

  /** 16 hex digits. */
  get owner(): string {
    return this.#heartbeat.id;
  }

  /**
   * The lease file of a subject (any text), or undefined where another excludes it. `before`: a lease of one's own for the same
   * subject, which is given back once there is the new one. Errors: those of the disk.
   */
  tryTake(subject: string, mode: LeaseMode, before?: string): string | undefined {
    this.#heartbeat.start();
    this.#count += 1;
    const { folder, key } = this.#placeOf(subject);
    const file = join(folder, `${key}.${mode}.${this.owner}.${this.#count}`);
    this.#makeFile(file);
    let isExcluded = true;
    try {
      isExcluded = this.#isExcluded(folder, key, mode, [file, before]);
    } finally {
      // Also where that could not be seen: what nobody knows of would keep all others out, and its own owner.
      if (isExcluded) rmSync(file, { force: true });
    }
    if (isExcluded) return undefined;
    if (before !== undefined) this.giveBack(before);
    return file;
  }

  giveBack(file: string): void {
    rmSync(file, { force: true });
  }

  /** Whether somebody, this owner included, holds the subject in a way that excludes all others; leaves no file. */
  isTaken(subject: string): boolean {
    this.#heartbeat.start();
    const { folder, key } = this.#placeOf(subject);
    try {
      return this.#isExcluded(folder, key, 'shared', []);
    } catch (error) {
      if (systemErrorCode(error) === 'ENOENT') return false;
      throw error;
    }
  }

  /** Nothing is held, and nobody waits: the sign of life ends until something is wanted again. */
  rest(): void {
    this.#heartbeat.stop();
  }

  #placeOf(subject: string): { readonly folder: string; readonly key: string } {
    const key = createHash('sha256').update(subject).digest('hex').slice(0, 32);
    return { folder: join(this.#folder, key.slice(0, 2)), key };
  }

  #isExcluded(folder: string, key: string, mode: LeaseMode, own: readonly (string | undefined)[]): boolean {
    return readdirSync(folder).some((name) => {
      const path = join(folder, name);
      const parts = NAME.exec(name);
      if (parts === null || parts[1] !== key || own.includes(path)) return false;
      if (mode === 'shared' && parts[2] === 'shared') return false;
      if (!this.#heartbeat.isStale(parts[3] ?? '')) return true;
      removeIfOurs(path);
      return false;
    });
  }

  #makeFile(path: string): void {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;
    try {
      closeSync(openSync(path, flags, 0o644));
    } catch (error) {
      if (systemErrorCode(error) !== 'ENOENT') throw error;
      this.#makeFolder(dirname(path));
      closeSync(openSync(path, flags, 0o644));
    }
  }
}

/** Where it can't be removed (another user's, in a folder with the sticky bit; a folder), it counts for nothing all the same. */
function removeIfOurs(path: string): void {
  try {
    // Not rm, which takes what it may not remove for a folder.
    unlinkSync(path);
  } catch (error) {
    if (!['ENOENT', 'EPERM', 'EACCES', 'EISDIR'].includes(systemErrorCode(error) ?? '')) throw error;
  }
}
