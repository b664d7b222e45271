/** Catalogs as tests write them down. */

import { buildCatalog } from '../../src/catalog/build-catalog.js';
import type { Catalog, CatalogSources } from '../../src/catalog/catalog.js';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';

export type MapSources = Pick<CatalogSources, 'repository' | 'commit' | 'date' | 'listing'> & {
  /** Text of `task_to_blob.json`. */
  readonly taskMap: string;
};

export function taskMapSources({ taskMap, ...sources }: MapSources): CatalogSources {
  return { ...sources, kind: 'task-map', index: taskMap, others: [] };
}

export function taskMapCatalog(sources: MapSources): Catalog {
  return buildCatalog(taskMapSources(sources));
}

/** A row of a manifest that tells the truth of a file. */
export function rowOf({ sha256, sizeBytes, path }: FakeFile, more: Readonly<Record<string, unknown>> = {}) {
  return { sif_sha256: sha256, sif_bytes: sizeBytes, hf_path: path, ...more };
}

/** `manifest.jsonl`, a small file outside LFS. */
export function manifestFile(rows: readonly unknown[]): FakeFile {
  return fileOf('manifest.jsonl', Buffer.from(rows.map((row) => `${JSON.stringify(row)}\n`).join('')), { lfs: false });
}
