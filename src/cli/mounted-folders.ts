/** The folders of a mount that hold images, as a look at the mount shows them. Nothing is opened, so nothing is fetched. */

import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { POOL_VIEW } from '../filesystem/tree.js';

export interface MountedFolder {
  /** Below the mount point, as "solvable" or "pool-name/solvable". */
  readonly path: string;
  /** Names of its images. */
  readonly files: readonly string[];
}

/** In the order of the tree, but for the flat views of all images, which come last: names of tasks say more. */
export async function mountedFolders(mountpoint: string): Promise<readonly MountedFolder[]> {
  const folders: MountedFolder[] = [];
  await collect(mountpoint, '', folders);
  return [...folders.filter((one) => !isFlatView(one.path)), ...folders.filter((one) => isFlatView(one.path))];
}

export function isFlatView(path: string): boolean {
  return basename(path) === POOL_VIEW;
}

async function collect(mountpoint: string, path: string, folders: MountedFolder[]): Promise<void> {
  const entries = await readdir(join(mountpoint, path), { withFileTypes: true });
  const below = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const files = entries.filter((entry) => !entry.isDirectory()).map(({ name }) => name);
  // One without any image is a folder of images, too, unless it only holds others.
  if (files.length > 0 || below.length === 0) folders.push({ path, files });
  for (const name of below) await collect(mountpoint, join(path, name), folders);
}
