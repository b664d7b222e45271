/**
 * A directory that nodes share, as a destination lays it out. Synchronous: for threads that may hang in it.
 *
 *   blobs/<2 hex>/<sha256>                0444, whole; appears by rename alone. Where a source looks first (directory-layouts.ts)
 *   incoming/<sha256>.<bytes>.<random>    being written, and how large it will be
 *   leases/                               whose turn it is to fetch what (locks/lease-folder.ts)
 *
 * Folders get the mode of the directory itself: whom it lets write, and which group it hands on, is said there once.
 */

import { randomBytes } from 'node:crypto';
import { chmodSync, closeSync, constants, fsyncSync, lstatSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { systemErrorCode } from '../errors.js';

const INCOMING_NAME = /^[0-9a-f]{64}\.(\d{1,15})\.[0-9a-f]{12}$/;
const MODE_BITS = 0o7777;

/** The size that a file will have by its name; undefined where it is none of ours. */
export function statedBytes(name: string): number | undefined {
  const [, digits] = INCOMING_NAME.exec(name) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

export class SharedFolder {
  readonly root: string;

  /** `root`: absolute, and there. */
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

  blob(sha256: string): string {
    return join(this.blobs, sha256.slice(0, 2), sha256);
  }

  /** Where it is to be written, before it is renamed. */
  newIncoming({ sha256, sizeBytes }: { readonly sha256: string; readonly sizeBytes: number }): string {
    return join(this.incoming, `${sha256}.${sizeBytes}.${randomBytes(6).toString('hex')}`);
  }

  /** Size of what lies in a blob's place, as the server knows it; undefined where there is no file. Errors: those of the disk. */
  sizeOf(sha256: string): number | undefined {
    // A client of NFS goes on believing for half a minute that a name is not there; opening its folder asks the server.
    for (const folder of [this.blobs, dirname(this.blob(sha256))]) {
      const descriptor = openFolder(folder);
      if (descriptor === undefined) return undefined;
      closeSync(descriptor);
    }
    const stats = lstatSync(this.blob(sha256), { throwIfNoEntry: false });
    return stats?.isFile() ? stats.size : undefined;
  }

  /** A folder below the root and what is missing above it. Errors: those of the disk. */
  make(path: string): void {
    if (path === this.root) return;
    try {
      mkdirSync(path);
    } catch (error) {
      const code = systemErrorCode(error);
      if (code === 'EEXIST') return;
      if (code !== 'ENOENT') throw error;
      this.make(dirname(path));
      this.make(path);
      return;
    }
    chmodSync(path, statSync(this.root).mode & MODE_BITS);
  }

  /** Lets the names in a folder last. */
  sync(path: string): void {
    const descriptor = openFolder(path);
    if (descriptor === undefined) return;
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  }
}

function openFolder(path: string): number | undefined {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}
