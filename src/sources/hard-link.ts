/**
 * A second name for a file of a directory, instead of a copy of its bytes: where the file is ours to keep. It is, where it belongs to
 * the user of this process, who has taken the right to write to it from everybody (mode 0444), and where the directory is no cache of
 * tmaxfs, whose leases are locks on the very files. Nothing of the file changes but the number of its names.
 *
 * What can hang in the directory's disk is asked apart from what changes the cache: nobody waits for the one, and for the other always.
 */

import { fstatSync, linkSync, lstatSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { CACHE_TAG, CACHE_TAG_NAME } from '../cache-tag.js';
import { flock } from '../libc.js';
import { readSmallFile } from '../small-file.js';

export interface OpenedFile {
  readonly descriptor: number;
  /** Where it was found, without links. */
  readonly path: string;
}

const READ_ONLY = 0o444;
const PERMISSIONS = 0o7777;

/**
 * Whether the file can have a name on the file system `device` and is ours to keep. While its descriptor is open it stays locked against
 * programs that would have it for themselves, as a blob is while it is read. Errors: those of the directory's disk.
 */
export function isOurs(directory: string, { descriptor }: OpenedFile, device: number): boolean {
  const file = fstatSync(descriptor);
  if (file.dev !== device || file.uid !== process.geteuid?.() || (file.mode & PERMISSIONS) !== READ_ONLY) return false;
  return readSmallFile(join(directory, CACHE_TAG_NAME)) !== CACHE_TAG && isLockable(descriptor);
}

function isLockable(descriptor: number): boolean {
  try {
    return flock(descriptor, 'sharedNonBlocking');
  } catch {
    // A file system without such locks, where blobs have none either.
    return true;
  }
}

/** Makes the link, in a folder that nobody else writes into. False where the file is to be copied instead. Errors: those of stat(2). */
export function linkFile({ descriptor, path }: OpenedFile, linkPath: string): boolean {
  const file = fstatSync(descriptor);
  try {
    linkSync(path, linkPath);
  } catch {
    // Another file system, one without links, a file with too many names: whatever else is wrong, the copy will tell.
    return false;
  }
  const linked = lstatSync(linkPath);
  if (linked.dev === file.dev && linked.ino === file.ino) return true;
  // Another file has been put in its place since it was opened.
  unlinkSync(linkPath);
  return false;
}
