/**
 * Takes away from a cache directory what is of no use to anybody, beside daemons that use it. Never a ready blob, never a file
 * whose lock another process holds.
 */

import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { removeStray } from '../small-file.js';
import { isLeft, isTemporary } from '../temporary-file.js';
import type { BlobStore } from './blob-store.js';
import { removeForeign } from './cache-folder.js';
import { blobOfPartial, RETIRED_NAME, SHA256_NAME } from './cache-layout.js';
import { type FoundFile, filesBelow } from './files-below.js';

export interface Removed {
  readonly files: number;
  /** What they took on disk. */
  readonly bytes: number;
}

export interface StoreCleaning {
  /** Images whose fetch has ended before its time. */
  readonly partials: Removed;
  /** Damaged blobs that were open when they were replaced, and are closed by now. */
  readonly retired: Removed;
  /** Proofs whose blob is gone. */
  readonly proofs: Removed;
  /** Files that were to be renamed by a process that has ended before. */
  readonly temporaryFiles: Removed;
  /** Partial files that stay, since somebody is filling them. */
  readonly runningFetches: number;
}

/** Errors: those of the disk. */
export async function cleanStore(store: BlobStore): Promise<StoreCleaning> {
  const { partials, running } = await removePartials(store);
  const retired = await removeRetired(store);
  const proofs = await removeProofs(store);
  const temporaryFiles = await removeTemporaryFiles(store);
  return { partials, retired, proofs, temporaryFiles, runningFetches: running };
}

async function removePartials(store: BlobStore): Promise<{ partials: Removed; running: number }> {
  const removed = new Count();
  let running = 0;
  for await (const file of filesBelow(store.layout.partials, 0)) {
    const sha256 = blobOfPartial(file.name);
    if (sha256 === undefined) {
      if (await removeForeign(store.layout, file.path)) removed.add(file);
    } else if (await store.partials.remove(sha256)) removed.add(file);
    else running += 1;
  }
  return { partials: removed, running };
}

async function removeRetired(store: BlobStore): Promise<Removed> {
  const removed = new Count();
  for await (const file of filesBelow(store.layout.retired, 0)) {
    const isOurs = RETIRED_NAME.test(file.name);
    if (await (isOurs ? store.removeRetired(file.name) : removeForeign(store.layout, file.path))) removed.add(file);
  }
  return removed;
}

async function removeProofs(store: BlobStore): Promise<Removed> {
  const { layout } = store;
  const removed = new Count();
  for await (const file of filesBelow(layout.proofs, 1)) {
    if (!SHA256_NAME.test(file.name)) continue;
    // A proof is written right before its blob appears. Whoever does that still has the partial file.
    if ((await store.partials.has(file.name)) || existsSync(layout.blob(file.name))) continue;
    await rm(file.path, { force: true });
    removed.add(file);
  }
  return removed;
}

async function removeTemporaryFiles({ layout }: BlobStore): Promise<Removed> {
  const removed = new Count();
  for (const [folder, depth] of [
    [layout.root, 0],
    [layout.reservations, 0],
    [layout.proofs, 1],
    [layout.quarantine, 0],
    [layout.catalogs, 1],
  ] as const) {
    for await (const file of filesBelow(folder, depth)) {
      if (!isTemporary(file.name) || !isLeft(file.modifiedAtMs)) continue;
      if (await removeStray(file.path)) removed.add(file);
    }
  }
  return removed;
}

class Count implements Removed {
  files = 0;
  bytes = 0;

  add({ bytes }: Pick<FoundFile, 'bytes'>): void {
    this.files += 1;
    this.bytes += bytes;
  }
}
