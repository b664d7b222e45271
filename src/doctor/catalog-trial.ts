/**
 * A program of its own that looks into the catalogs on disk: `catalog-trial.js CACHE POOLS`, with the pools as JSON, writes the smallest
 * image that each of those has there, as JSON on standard output. Their disk may hang, which then this program does.
 */

import { CacheLayout } from '../blobs/cache-layout.js';
import { buildCatalog, formsOf } from '../catalog/build-catalog.js';
import { CatalogStore } from '../catalog/catalog-store.js';
import type { PoolChoice } from '../daemon/pool-choices.js';
import type { BlobAddress } from '../sources/source.js';

export type PoolPlace = Pick<PoolChoice, 'repository' | 'revision' | 'catalog'>;

const COMMIT = /^[0-9a-f]{40}$/;

const [, , cacheDirectory = '', poolsText = '[]'] = process.argv;
const pools: readonly PoolPlace[] = JSON.parse(poolsText);
const store = new CatalogStore(new CacheLayout(cacheDirectory).catalogs);
const images: BlobAddress[] = [];
for (const pool of pools) images.push(...(await smallestOf(pool)));
process.stdout.write(`${JSON.stringify(images)}\n`);

/** None where no catalog of it is there. */
async function smallestOf({ repository, revision, catalog }: PoolPlace): Promise<readonly BlobAddress[]> {
  const commit = COMMIT.test(revision) ? revision : await store.lastCommit(repository, revision);
  if (commit === undefined) return [];
  for (const { kind } of formsOf(catalog)) {
    const sources = await store.read(repository, commit, kind);
    if (sources === undefined) continue;
    const blobs = [...buildCatalog(sources).blobs.values()];
    return blobs.sort((one, other) => one.sizeBytes - other.sizeBytes).slice(0, 1);
  }
  return [];
}
