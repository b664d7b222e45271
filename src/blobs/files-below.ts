/** What lies in the folders of a cache: looked at, never followed nor changed. */

import type { Stats } from 'node:fs';
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { isStrange } from '../small-file.js';

export interface FoundFile {
  readonly path: string;
  readonly name: string;
  /** What it takes on disk. */
  readonly bytes: number;
  readonly modifiedAtMs: number;
}

/** Everything in `folder` that is not a folder itself, down to `depth` folders below it. Those that come or go meanwhile may be missed. */
export async function* filesBelow(folder: string, depth: number): AsyncGenerator<FoundFile, void, undefined> {
  for (const name of await ifThere(readdir(folder), [])) {
    const path = join(folder, name);
    const stats = await ifThere<Stats | undefined>(lstat(path), undefined);
    if (stats === undefined) continue;
    if (!stats.isDirectory()) yield { path, name, bytes: stats.blocks * 512, modifiedAtMs: stats.mtimeMs };
    else if (depth > 0) yield* filesBelow(path, depth - 1);
  }
}

async function ifThere<Value>(looking: Promise<Value>, otherwise: Value): Promise<Value> {
  try {
    return await looking;
  } catch (error) {
    if (isStrange(error)) return otherwise;
    throw error;
  }
}
