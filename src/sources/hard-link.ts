/**
 * A second name for a file of a directory, instead of a copy of its bytes: where the file is ours to keep. It is, where it belongs to
 * the user of this process, who has taken the right to write to it from everybody (mode 0444), and where the directory is no cache of
 * tmaxfs, whose leases are locks on the very files. Nothing of the file changes but the number of its names.
 */

import { fstatSync, linkSync, lstatSync, unlinkSync } from 'node:fs';
import { join } from 'node:path';
import { CACHE_TAG, CACHE_TAG_NAME } from '../cache-tag.js';
import { readSmallFile } from '../small-file.js';

export interface OpenedFile {
  readonly descriptor: number;
  /** Where it was found, without links. */
  readonly path: string;
}

const READ_ONLY = 0o444;
const PERMISSIONS = 0o7777;

/** Makes the link, in a folder that nobody else writes into. False where the file is to be copied instead. Errors: those of stat(2). */
export function linkIfOurs(directory: string, { descriptor, path }: OpenedFile, linkPath: string): boolean {
  const file = fstatSync(descriptor);
  if (file.uid !== process.geteuid?.() || (file.mode & PERMISSIONS) !== READ_ONLY) return false;
  if (readSmallFile(join(directory, CACHE_TAG_NAME)) === CACHE_TAG) return false;
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
