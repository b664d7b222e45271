/**
 * The folder of a cache: made, marked as ours, and refused where others could write into it.
 *
 * All that lies in a cache of ours may be removed, so a folder with other things in it never becomes one.
 */

import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { TmaxError } from '../errors.js';
import { makeFolder } from '../folders.js';
import { readSmallFile } from '../small-file.js';
import { replaceFile } from '../temporary-file.js';
import type { CacheLayout } from './cache-layout.js';
import { lstatIfThere } from './file-lookup.js';

/** Marks a folder as a cache, also to backup programs. Source: https://bford.info/cachedir/ */
const TAG_NAME = 'CACHEDIR.TAG';
const TAG = 'Signature: 8a477f597d28d172789f06886806bc55\n# Cache of tmaxfs: images that can be fetched again.\n';

/** Makes what is missing of it. Errors: EEXIST it holds other things; those of the disk. */
export async function makeCacheFolders(layout: CacheLayout): Promise<void> {
  makeFolder(layout.root);
  await claim(layout);
  for (const folder of layout.folders) makeFolder(folder);
}

/** Makes an empty folder ours by a tag, since all else that lies in a cache of ours may be removed. Errors: EEXIST. */
async function claim({ root }: CacheLayout): Promise<void> {
  const tag = join(root, TAG_NAME);
  // In this order: another daemon may be making the cache right now, and writes the tag before all else.
  const others = (await readdir(root)).filter((name) => !name.startsWith(TAG_NAME));
  if (readSmallFile(tag) === TAG) return;
  if (others.length > 0) {
    throw new TmaxError(
      'EEXIST',
      `the cache directory ${root} holds other things and is no cache of tmaxfs; name an empty folder with --cache-dir`,
      { source: 'cache', level: 'error' },
    );
  }
  // Synced before anything else is made: a power cut that left the rest without it would leave a folder of nobody's.
  await replaceFile(tag, TAG);
}

/** What others can write into can't be trusted to hold what was proven. Errors: EPERM. */
export async function refuseUnsafe(layout: CacheLayout): Promise<void> {
  const uid = process.getuid?.() ?? 0;
  for (const path of [layout.root, ...layout.folders, layout.locks, layout.lockOwners]) {
    // The root may be reached through a link that the user has named; below it there are none of ours.
    const stats = path === layout.root ? await stat(path) : await lstatIfThere(path);
    if (stats === undefined) continue;
    const refuse = (why: string, remedy: string) =>
      new TmaxError('EPERM', `the cache directory ${path} ${why}; ${remedy}`, { source: 'cache', level: 'error' });
    const another = 'name a folder of your own with --cache-dir';
    if (!stats.isDirectory()) throw refuse('is not a directory', another);
    if (stats.uid !== uid) {
      const remedy = `${another}; --source dir:${layout.root} takes from this one what is there`;
      throw refuse(`belongs to user ${stats.uid}, not to ${uid}`, remedy);
    }
    if ((stats.mode & 0o022) !== 0) {
      throw refuse('can be written by others, who could plant what was never proven', `run chmod go-w ${path}`);
    }
  }
}
