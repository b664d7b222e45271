/**
 * A directory that nodes share, as a destination lays it out. Synchronous: for threads that may hang in it.
 *
 *   blobs/<2 hex>/<sha256>                0444, whole; appears by rename alone. Where a source looks first (directory-layouts.ts)
 *   incoming/<sha256>.<bytes>.<random>    being written, and how large it will be
 *   leases/                               whose turn it is to fetch what (locks/lease-folder.ts)
 *
 * Folders get the mode of the directory itself: whom it lets write, and which group it hands on, is said there once. Others may
 * write there, so no link is followed below it: what is written goes by open folders (`/proc/self/fd`), not by their names.
 */

import { randomBytes } from 'node:crypto';
import { closeSync, constants, fchmodSync, fsyncSync, lstatSync, mkdirSync, openSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { systemErrorCode } from '../errors.js';

const INCOMING_NAME = /^[0-9a-f]{64}\.(\d{1,15})\.[0-9a-f]{12}$/;
const MODE_BITS = 0o7777;
const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY;

/** The size that a file will have by its name; undefined where it is none of ours. */
export function statedBytes(name: string): number | undefined {
  const [, digits] = INCOMING_NAME.exec(name) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** What a file is called before it is renamed. */
export function incomingName({ sha256, sizeBytes }: { readonly sha256: string; readonly sizeBytes: number }): string {
  return `${sha256}.${sizeBytes}.${randomBytes(6).toString('hex')}`;
}

/** A folder that is held open: what is done at `path` is done in this very folder, wherever its name leads by then. */
export interface OpenFolder {
  readonly path: string;
  /** Lets the names in it last. */
  sync(): void;
  close(): void;
}

export class SharedFolder {
  readonly root: string;

  /** `root`: absolute, and there; it may be reached by links. */
  constructor(root: string) {
    this.root = root;
  }

  get blobs(): string {
    return join(this.root, 'blobs');
  }

  get incoming(): string {
    return join(this.root, 'incoming');
  }

  get leases(): string {
    return join(this.root, 'leases');
  }

  /** Where a blob lies, by the digest alone. */
  shard(sha256: string): string {
    return join(this.blobs, sha256.slice(0, 2));
  }

  blob(sha256: string): string {
    return join(this.shard(sha256), sha256);
  }

  /** Size of what lies in a blob's place, as the server knows it; undefined where there is no file. Errors: those of the disk. */
  sizeOf(sha256: string): number | undefined {
    // A client of NFS goes on believing for half a minute that a name is not there; opening its folder asks the server.
    const shard = this.open(this.shard(sha256));
    if (shard === undefined) return undefined;
    try {
      const stats = lstatSync(join(shard.path, sha256), { throwIfNoEntry: false });
      return stats?.isFile() ? stats.size : undefined;
    } finally {
      shard.close();
    }
  }

  /** Opens a folder below the root; undefined where there is none. Errors: ELOOP, ENOTDIR it is behind a link; those of the disk. */
  open(path: string): OpenFolder | undefined {
    return this.#walk(path, () => false);
  }

  /** Opens a folder below the root, and makes it, and what is missing above it, where there is none. Errors: as `open`. */
  make(path: string): OpenFolder {
    const { mode } = statSync(this.root);
    const made = this.#walk(path, (missing) => {
      try {
        mkdirSync(missing);
      } catch (error) {
        // Somebody was quicker.
        if (systemErrorCode(error) === 'EEXIST') return true;
        throw error;
      }
      const descriptor = openSync(missing, FOLDER | constants.O_NOFOLLOW);
      try {
        fchmodSync(descriptor, mode & MODE_BITS);
      } finally {
        closeSync(descriptor);
      }
      return true;
    });
    if (made === undefined) throw new Error(`${path} can't be made`);
    return made;
  }

  /** From the root, a folder at a time. `onMissing`: whether it is there now. */
  #walk(path: string, onMissing: (path: string) => boolean): OpenFolder | undefined {
    let descriptor = openSync(this.root, FOLDER);
    for (const name of relative(this.root, path).split('/')) {
      const below = join(pathOf(descriptor), name);
      try {
        const next = openBelow(below) ?? (onMissing(below) ? openBelow(below) : undefined);
        closeSync(descriptor);
        if (next === undefined) return undefined;
        descriptor = next;
      } catch (error) {
        closeSync(descriptor);
        throw error;
      }
    }
    const held = descriptor;
    return { path: pathOf(held), sync: () => fsyncSync(held), close: () => closeSync(held) };
  }
}

function pathOf(descriptor: number): string {
  return `/proc/self/fd/${descriptor}`;
}

function openBelow(path: string): number | undefined {
  try {
    return openSync(path, FOLDER | constants.O_NOFOLLOW);
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}
