/**
 * A copying thread: finds an image in a directory and brings it into the partial file, hashing it on the way. By reflink
 * where the file system can, so that the two share their bytes on disk; else by a hard link beside the partial file where the
 * image is ours to keep (hard-link.ts); else byte by byte.
 *
 * Loaded by `directory-source.ts` alone. Everything here may block for as long as the directory's disk likes.
 */

import { createHash } from 'node:crypto';
import {
  accessSync,
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  readlinkSync,
  readSync,
  realpathSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { diskError } from '../disk-error.js';
import { messageOf, systemErrorCode } from '../errors.js';
import { cloneFile } from '../libc.js';
import { openReadOnly } from '../read-only-file.js';
import { workBehind } from '../scheduling.js';
import { Abandoned, CopyState } from './copy-state.js';
import { isOurs, linkFile, type OpenedFile } from './hard-link.js';
import { type PlainError, plainError } from './plain-error.js';
import type { LinkedFile } from './source.js';

workBehind();

export interface CopyJob {
  /** The directory, absolute. */
  readonly folder: string;
  /** Relative to it, the surest first. */
  readonly places: readonly string[];
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly partialPath: string;
  /** Where a hard link to the image may lie instead. */
  readonly linkPath: string | undefined;
  /** Of the `CopyState`. */
  readonly memory: SharedArrayBuffer;
}

export type CopyOutcome =
  /** `sha256` is that of what is in the partial file now; or of what lies at `linkPath`, and then the partial file is empty. */
  | { readonly kind: 'copied'; readonly sha256: string; readonly sizeBytes: number; readonly linked?: LinkedFile }
  /** `reason`: what was in its places instead. */
  | { readonly kind: 'absent'; readonly reason: string }
  /** Whether it has the image can't be seen: this user may not enter the directory, or it is there no more. */
  | { readonly kind: 'closed'; readonly reason: string }
  | { readonly kind: 'abandoned' }
  /** Of the disk of the cache. */
  | { readonly kind: 'failed'; readonly error: PlainError };

const CHUNK_BYTES = 1 << 20;

type Copy = Extract<CopyOutcome, { kind: 'copied' }>;

/** The right file of those that lie in the places; where there is none, a wrong one of the right size. Never rejects. */
export default function copyImage(job: CopyJob): CopyOutcome {
  const state = new CopyState(job.memory);
  const seen = new Set<string>();
  const reasons: string[] = [];
  let wrong: Copy | undefined;
  try {
    // First of all: a thread that hangs in the folder is to be told from one that has not been given the job yet.
    state.step(0);
    const closed = whyClosed(job.folder);
    if (closed !== undefined) return { kind: 'closed', reason: closed };
    for (const place of job.places) {
      state.step(0);
      const copy = copyFrom(job, place, state, seen, reasons);
      if (copy?.sha256 === job.sha256) return copy;
      wrong = copy ?? wrong;
    }
  } catch (error) {
    if (error instanceof Abandoned) return { kind: 'abandoned' };
    return { kind: 'failed', error: plainError(error, 'directory') };
  }
  return wrong ?? { kind: 'absent', reason: reasons.join('; ') };
}

function whyClosed(folder: string): string | undefined {
  try {
    accessSync(folder, constants.X_OK);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Undefined where it is not there, is no file of that size, or can't be read. Errors: Abandoned; those of the cache's disk. */
function copyFrom(
  job: CopyJob,
  place: string,
  state: CopyState,
  seen: Set<string>,
  reasons: string[],
): Copy | undefined {
  let file: OpenedFile;
  try {
    file = openBelow(job.folder, place);
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR'].includes(systemErrorCode(error) ?? '')) reasons.push(`${place}: ${messageOf(error)}`);
    return undefined;
  }
  try {
    const stats = fstatSync(file.descriptor);
    const identity = `${stats.dev}:${stats.ino}`;
    // Its snapshots are links to its blobs.
    if (seen.has(identity)) return undefined;
    seen.add(identity);
    if (!stats.isFile() || stats.size !== job.sizeBytes) {
      reasons.push(`${place} ${stats.isFile() ? `has ${stats.size} bytes, not ${job.sizeBytes}` : 'is not a file'}`);
      return undefined;
    }
    state.step();
    return copyInto(job, file, state);
  } catch (error) {
    if (!(error instanceof UnreadableSource)) throw error;
    reasons.push(`${place}: ${error.message}`);
    return undefined;
  } finally {
    closeSync(file.descriptor);
  }
}

/** Opens a file below the folder, also through links, as long as they lead to one below it. Errors: those of open(2). */
function openBelow(folder: string, place: string): OpenedFile {
  const root = realpathSync(folder);
  const real = realpathSync(join(root, place));
  refuseOutside(root, real);
  const descriptor = openReadOnly(real);
  try {
    // A link may have been put in the way in between.
    refuseOutside(root, readlinkSync(`/proc/self/fd/${descriptor}`));
    return { descriptor, path: real };
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
}

function refuseOutside(root: string, real: string): void {
  if (!real.startsWith(root === '/' ? root : `${root}/`)) throw new Error(`it leads out of the directory, to ${real}`);
}

function copyInto(job: CopyJob, source: OpenedFile, state: CopyState): Copy {
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  // It makes the file where there is none, as after another source's was published.
  const target = state.write(() => onCacheDisk(() => openSync(job.partialPath, flags, 0o600)));
  try {
    const isCloned = state.write(() => {
      onCacheDisk(() => ftruncateSync(target, 0));
      return cloneFile(target, source.descriptor);
    });
    const linked = isCloned ? undefined : link(job, source, target, state);
    if (linked !== undefined) return linked;
    const sha256 = digest(job, state, (chunk, length, at) => {
      if (isCloned) return onCacheDisk(() => readSync(target, chunk, 0, length, at));
      const count = readSource(source.descriptor, chunk, length, at);
      state.write(() => onCacheDisk(() => writeWhole(target, chunk, count, at)));
      return count;
    });
    return { kind: 'copied', sha256, sizeBytes: onCacheDisk(() => fstatSync(target).size) };
  } finally {
    closeSync(target);
  }
}

/** Undefined where the file is to be copied: it is not ours to keep, is another than wanted, or was changed while it was read. */
function link({ linkPath, ...job }: CopyJob, source: OpenedFile, target: number, state: CopyState): Copy | undefined {
  if (linkPath === undefined || !isOurs(job.folder, source, fstatSync(target).dev)) return undefined;
  if (!state.write(() => linkFile(source, linkPath))) return undefined;
  let isRight = false;
  try {
    const before = versionOf(source.descriptor);
    const modifiedSeconds = Math.floor(fstatSync(source.descriptor).mtimeMs / 1000);
    const sha256 = digest(job, state, (chunk, length, at) => readSource(source.descriptor, chunk, length, at));
    isRight = sha256 === job.sha256 && versionOf(source.descriptor) === before;
    return isRight ? { kind: 'copied', sha256, sizeBytes: job.sizeBytes, linked: { modifiedSeconds } } : undefined;
  } finally {
    if (!isRight) state.write(() => unlinkSync(linkPath));
  }
}

/** Another, once the file was written to, or anything about it was changed. */
function versionOf(descriptor: number): string {
  const { size, mtimeNs, ctimeNs } = fstatSync(descriptor, { bigint: true });
  return `${size} ${mtimeNs} ${ctimeNs}`;
}

/** Of all that `read` brings, a chunk at a time; less than asked for is all there is. */
function digest(
  { sizeBytes }: Pick<CopyJob, 'sizeBytes'>,
  state: CopyState,
  read: (chunk: Buffer, length: number, at: number) => number,
): string {
  const hash = createHash('sha256');
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  for (let at = 0; at < sizeBytes; ) {
    const count = read(chunk, Math.min(chunk.length, sizeBytes - at), at);
    // It shrank: the digest will tell.
    if (count === 0) break;
    hash.update(chunk.subarray(0, count));
    at += count;
    state.step(at);
  }
  return hash.digest('hex');
}

function writeWhole(target: number, chunk: Buffer, length: number, position: number): void {
  for (let done = 0; done < length; ) done += writeSync(target, chunk, done, length - done, position + done);
}

/** The directory's own disk is at fault: another source may have what it does not give. */
class UnreadableSource extends Error {
  override readonly name = 'UnreadableSource';
}

function readSource(source: number, chunk: Buffer, length: number, position: number): number {
  try {
    return readSync(source, chunk, 0, length, position);
  } catch (cause) {
    throw new UnreadableSource(`it can't be read (${messageOf(cause)})`, { cause });
  }
}

function onCacheDisk<Result>(act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw diskError(error, "can't write a partial file");
  }
}
