/** The catalogs in a cache directory, made as all else in it. */

import type { BlobStore } from '../blobs/blob-store.js';
import { makeCacheFolder } from '../blobs/cache-folder.js';
import { CatalogStore } from '../catalog/catalog-store.js';

export function catalogsIn({ layout }: Pick<BlobStore, 'layout'>): CatalogStore {
  return new CatalogStore(layout.catalogs, {
    makeFolder: (path) => makeCacheFolder(layout, path),
    fileMode: layout.sharing?.readableMode,
  });
}
