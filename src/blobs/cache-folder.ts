/**
 * The folder of a cache: made, marked as ours, and refused where others could write into it who were not asked to.
 *
 * All that lies in a cache of ours may be removed, so a folder with other things in it never becomes one.
 */

import type { Stats } from 'node:fs';
import { lstatSync } from 'node:fs';
import { mkdir, readdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CACHE_TAG, CACHE_TAG_NAME } from '../cache-tag.js';
import { systemErrorCode, TmaxError } from '../errors.js';
import { makeFolder } from '../folders.js';
import { readSmallFile, removeStray } from '../small-file.js';
import { replaceFile } from '../temporary-file.js';
import type { CacheLayout } from './cache-layout.js';
import { type CacheSharing, makeFolderOfMode, mendFolder } from './cache-sharing.js';
import { lstatIfThere, namesIn } from './file-lookup.js';

/** Makes what is missing of it. Errors: EEXIST it holds other things; EPERM it is unsafe, or something else lies in a folder's place; those of the disk. */
export async function makeCacheFolders(layout: CacheLayout): Promise<void> {
  const { sharing } = layout;
  if (sharing === undefined) {
    makeFolder(layout.root);
    // What is left by a start that is refused would be in the way of those whose folder it is.
    refuseOthers(layout, layout.root, await stat(layout.root));
  }
  await claim(layout);
  const shards = sharing === undefined ? [] : layout.shards;
  for (const folder of [...layout.folders, ...shards]) makeCacheFolderNow(layout, folder);
}

/** Makes a folder of the cache, and what is missing above it; whether there was none. Errors: as `makeCacheFolders`. */
export async function makeCacheFolder(layout: CacheLayout, path: string): Promise<boolean> {
  if (layout.sharing === undefined) return (await mkdir(path, { recursive: true, mode: 0o755 })) !== undefined;
  return (await lstatIfThere(path))?.isDirectory() !== true && makeShared(layout, layout.sharing, path);
}

/** As `makeCacheFolder`, synchronously. */
export function makeCacheFolderNow(layout: CacheLayout, path: string): void {
  if (layout.sharing === undefined) makeFolder(path);
  else makeShared(layout, layout.sharing, path);
}

function makeShared(layout: CacheLayout, sharing: CacheSharing, path: string): boolean {
  const holdsFolders = layout.holdsFolders(path);
  try {
    makeFolderOfMode(path, sharing.folderMode(holdsFolders));
    return true;
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === 'EEXIST') {
      mendFolder(path, sharing, holdsFolders);
      // A link may have been put there before the folder was needed.
      refuseFault(layout, sharing, path, lstatSync(path, { throwIfNoEntry: false }));
      return false;
    }
    // The root itself is the administrator's to make.
    if (code !== 'ENOENT' || dirname(path) === layout.root) throw error;
    makeShared(layout, sharing, dirname(path));
    return makeShared(layout, sharing, path);
  }
}

/** Makes an empty folder ours by a tag, since all else that lies in a cache of ours may be removed. Errors: EEXIST. */
async function claim({ root, sharing }: CacheLayout): Promise<void> {
  const tag = join(root, CACHE_TAG_NAME);
  // In this order: another daemon may be making the cache right now, and writes the tag before all else.
  const others = (await readdir(root)).filter((name) => !name.startsWith(CACHE_TAG_NAME));
  if (readSmallFile(tag) === CACHE_TAG) return;
  if (others.length > 0) {
    throw new TmaxError(
      'EEXIST',
      `the cache directory ${root} holds other things and is no cache of tmaxfs; name an empty folder with --cache-dir`,
      { source: 'cache', level: 'error' },
    );
  }
  try {
    // Synced before anything else is made: a power cut that left the rest without it would leave a folder of nobody's.
    await replaceFile(tag, CACHE_TAG, sharing?.readableMode);
  } catch (error) {
    // Another user was quicker: the sticky bit of a shared root keeps that file theirs.
    if (sharing === undefined || readSmallFile(tag) !== CACHE_TAG) throw error;
  }
}

/**
 * What others can write into can't be trusted to hold what was proven, unless that is what is asked for; and then only as far as
 * the group of the directory goes. Errors: EPERM.
 */
export async function refuseUnsafe(layout: CacheLayout): Promise<void> {
  const { root, sharing } = layout;
  const paths = [...layout.folders, layout.locks, layout.lockOwners];
  if (sharing === undefined) {
    // The root may be reached through a link that the user has named; below it there are none of ours.
    refuseOthers(layout, root, await stat(root));
    for (const path of paths) refuseOthers(layout, path, await lstatIfThere(path));
    return;
  }
  for (const path of [...paths, ...layout.shards, ...layout.lockShards]) {
    refuseFault(layout, sharing, path, await lstatIfThere(path));
  }
  // What else lies among the catalogs is never looked into.
  for (const name of await namesIn(layout.catalogs)) {
    const path = join(layout.catalogs, name);
    const stats = await lstatIfThere(path);
    if (stats?.isDirectory()) refuseFault(layout, sharing, path, stats);
  }
}

function refuseFault(layout: CacheLayout, sharing: CacheSharing, path: string, stats: Stats | undefined): void {
  const fault = stats === undefined ? undefined : sharing.faultOf(path, stats, layout.holdsFolders(path));
  if (fault !== undefined) throw unsafe(path, `${fault.what}; user ${stats?.uid}, or root, can run ${fault.remedy}`);
}

function refuseOthers({ root }: CacheLayout, path: string, stats: Stats | undefined): void {
  if (stats === undefined) return;
  const uid = process.getuid?.() ?? 0;
  const another = 'name a folder of your own with --cache-dir';
  const shared = 'where a group is to share it, say so with --shared-cache';
  if (!stats.isDirectory()) throw unsafe(path, `is not a directory; ${another}`);
  if (stats.uid !== uid) {
    const remedy = `${another}; --source dir:${root} takes from this one what is there; ${shared}`;
    throw unsafe(path, `belongs to user ${stats.uid}, not to ${uid}; ${remedy}`);
  }
  if ((stats.mode & 0o022) !== 0) {
    const why = 'can be written by others, who could plant what was never proven';
    throw unsafe(path, `${why}; run chmod go-w ${path}, or, ${shared}`);
  }
}

function unsafe(path: string, words: string): TmaxError {
  return new TmaxError('EPERM', `the cache directory ${path} ${words}`, { source: 'cache', level: 'error' });
}

/**
 * Removes what lies in a cache and is nothing of ours. In a shared one it stays: who owns a folder there could put a link in its
 * place while it is looked through, to a folder whose files would go. False where it stays. Errors: those of the disk.
 */
export async function removeForeign({ sharing }: CacheLayout, path: string): Promise<boolean> {
  return sharing === undefined && (await removeStray(path));
}
