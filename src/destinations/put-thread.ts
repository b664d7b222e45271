/**
 * A writing thread: brings a blob into a shared directory, under a temporary name first, hashing it on the way, so that what
 * this disk has changed since the proof goes no further. By reflink where both are on one file system that can.
 *
 * Loaded by `directory-destination.ts` alone. Everything here may block for as long as the directory's disk likes.
 */

import { createHash } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { messageOf, systemErrorCode } from '../errors.js';
import { cloneFile } from '../libc.js';
import { openReadOnly } from '../read-only-file.js';
import { workBehind } from '../scheduling.js';
import { Abandoned, CopyState } from '../sources/copy-state.js';
import type { RoomLimits } from './destination.js';
import { Room } from './room.js';
import { incomingName, type OpenFolder, SharedFolder } from './shared-folder.js';

workBehind();

export interface PutJob {
  /** The directory, absolute. */
  readonly folder: string;
  readonly sha256: string;
  readonly sizeBytes: number;
  /** The proven file. */
  readonly path: string;
  readonly limits: RoomLimits;
  readonly mends: boolean;
  /** Of the `CopyState`. */
  readonly memory: SharedArrayBuffer;
}

export type PutOutcome =
  | { readonly kind: 'written' | 'there' | 'abandoned' }
  | { readonly kind: 'full' | 'damaged'; readonly words: string }
  /** `code`: of the system. */
  | { readonly kind: 'failed'; readonly code: string | undefined; readonly words: string };

const CHUNK_BYTES = 1 << 20;
/** What is written and not yet on the server: bounds memory, and how long a last sync can take. */
const SYNC_EVERY_BYTES = 32 * CHUNK_BYTES;
const FULL = ['ENOSPC', 'EDQUOT'];

/** Of each directory, for as long as this thread lives. */
const rooms = new Map<string, Room>();

/** Never rejects. */
export default function putBlob(job: PutJob): PutOutcome {
  const state = new CopyState(job.memory);
  const folder = new SharedFolder(job.folder);
  try {
    state.step(0);
    if (isThere(folder, job, state)) return { kind: 'there' };
    const incoming = folder.make(folder.incoming);
    try {
      return write(folder, incoming, job, state);
    } finally {
      incoming.close();
    }
  } catch (error) {
    if (error instanceof Abandoned) return { kind: 'abandoned' };
    const code = systemErrorCode(error);
    const words = messageOf(error);
    return FULL.includes(code ?? '') ? { kind: 'full', words } : { kind: 'failed', code, words };
  }
}

function isThere(folder: SharedFolder, job: PutJob, state: CopyState): boolean {
  if (folder.sizeOf(job.sha256) !== job.sizeBytes) return false;
  if (!job.mends) return true;
  const file = openReadOnly(folder.blob(job.sha256));
  try {
    return digestOf(file, job.sizeBytes, state, () => {}) === job.sha256;
  } catch (error) {
    if (error instanceof Abandoned) throw error;
    // What can't be read there is of no use to anybody.
    return false;
  } finally {
    closeSync(file);
  }
}

function write(folder: SharedFolder, incoming: OpenFolder, job: PutJob, state: CopyState): PutOutcome {
  const { sha256, sizeBytes } = job;
  const source = openReadOnly(job.path);
  const path = join(incoming.path, incomingName(job));
  let target: number | undefined;
  try {
    target = openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, 0o600);
    const room = rooms.get(job.folder) ?? new Room(folder);
    rooms.set(job.folder, room);
    const refusal = room.refusal(path, job.limits);
    if (refusal !== undefined) return { kind: 'full', words: refusal };
    const digest = copy(source, target, sizeBytes, state);
    if (digest !== sha256 || fstatSync(target).size !== sizeBytes) {
      return { kind: 'damaged', words: `its bytes have the sha256 ${digest} by now` };
    }
    fchmodSync(target, 0o444);
    fsyncSync(target);
    state.step();
    closeSync(target);
    target = undefined;
    // Another node may have been quicker: who reads its file shall not find it replaced.
    if (!job.mends && folder.sizeOf(sha256) === sizeBytes) return { kind: 'there' };
    publish(folder, path, sha256, state);
    return { kind: 'written' };
  } finally {
    closeSync(source);
    if (target !== undefined) closeSync(target);
    rmSync(path, { force: true });
  }
}

function publish(folder: SharedFolder, path: string, sha256: string, state: CopyState): void {
  const shard = folder.make(folder.shard(sha256));
  try {
    state.write(() => renameSync(path, join(shard.path, sha256)));
    shard.sync();
  } finally {
    shard.close();
  }
  const blobs = folder.open(folder.blobs);
  blobs?.sync();
  blobs?.close();
}

/** Digest of what was read. Errors: Abandoned; those of both disks. */
function copy(source: number, target: number, sizeBytes: number, state: CopyState): string {
  if (cloneFile(target, source)) return digestOf(target, sizeBytes, state, () => {});
  let unsyncedBytes = 0;
  return digestOf(source, sizeBytes, state, (chunk, at) => {
    for (let done = 0; done < chunk.length; ) done += writeSync(target, chunk, done, chunk.length - done, at + done);
    unsyncedBytes += chunk.length;
    if (unsyncedBytes < SYNC_EVERY_BYTES) return;
    fdatasyncSync(target);
    unsyncedBytes = 0;
  });
}

function digestOf(
  file: number,
  sizeBytes: number,
  state: CopyState,
  onChunk: (chunk: Buffer, at: number) => void,
): string {
  const hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  for (let at = 0; at < sizeBytes; ) {
    const count = readSync(file, buffer, 0, Math.min(buffer.length, sizeBytes - at), at);
    if (count === 0) break;
    const chunk = buffer.subarray(0, count);
    hash.update(chunk);
    onChunk(chunk, at);
    at += count;
    state.step(at);
  }
  return hash.digest('hex');
}
