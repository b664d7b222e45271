/** What `tmaxfs cache gc` takes away, beside daemons that may use the directory: the document that it prints is stable. */

import type { BlobStore } from '../blobs/blob-store.js';
import { cleanStore, type Removed, type StoreCleaning } from '../blobs/cleaning.js';
import type { StoredCatalog } from '../catalog/catalog-store.js';
import { TmaxError } from '../errors.js';
import { catalogsIn } from './catalog-folder.js';

export interface CacheCleaning extends StoreCleaning {
  readonly directory: string;
  /** Of commits that nothing shows any more and nobody has used for long, and damaged ones. */
  readonly catalogs: Removed;
  /** Blobs that no daemon shows, and no revision known here; null where they were not asked for. */
  readonly unlisted: (Removed & { readonly keptPinned: number; readonly keptInUse: number }) | null;
}

export interface CleaningOptions {
  /** Commits that daemons show, whether or not a revision stands for them. */
  readonly shown: ReadonlySet<string>;
  /** Blobs that neither a daemon nor a revision known here shows go as well. */
  readonly unlisted: boolean;
}

/** A commit that was mounted by its number is known by no revision. It may be mounted again, without a network even. */
const CATALOG_KEPT_MS = 30 * 86_400_000;

/** Errors: those of the disk; ENOENT no catalog tells what is listed. */
export async function cleanCache(store: BlobStore, { shown, unlisted }: CleaningOptions): Promise<CacheCleaning> {
  const catalogs = catalogsIn(store);
  const removedCatalogs = { files: 0, bytes: 0 };
  const listed = new Set<string>();
  const unused: StoredCatalog[] = [];
  for await (const stored of catalogs.all()) {
    const { commit, isCurrent, usedAtMs, catalog } = stored;
    const isShown = catalog !== undefined && (isCurrent || shown.has(commit));
    if (isShown) for (const sha256 of catalog.blobs.keys()) listed.add(sha256);
    const isRecent = catalog !== undefined && usedAtMs > Date.now() - CATALOG_KEPT_MS;
    // Without what it holds: there may be many.
    if (!isShown && !isRecent) unused.push({ ...stored, catalog: undefined });
  }
  // Said before anything is removed.
  if (unlisted && listed.size === 0) {
    const message = `nothing in ${store.layout.root} tells what a revision stands for: every image would count as unlisted; mount once`;
    throw new TmaxError('ENOENT', message, { source: 'cache' });
  }
  for (const catalog of unused) {
    await catalogs.remove(catalog);
    removedCatalogs.files += 1;
    removedCatalogs.bytes += catalog.sizeBytes;
  }
  const cleaned = await cleanStore(store);
  const blobs = unlisted ? await removeUnlisted(store, listed) : null;
  return { directory: store.layout.root, ...cleaned, catalogs: removedCatalogs, unlisted: blobs };
}

async function removeUnlisted(store: BlobStore, listed: ReadonlySet<string>) {
  const count = { files: 0, bytes: 0, keptPinned: 0, keptInUse: 0 };
  for (const { sha256, sizeBytes } of await store.list()) {
    if (listed.has(sha256)) continue;
    if (store.pins.has(sha256)) count.keptPinned += 1;
    else if (await store.evict(sha256)) {
      count.files += 1;
      count.bytes += sizeBytes;
    } else count.keptInUse += 1;
  }
  return count;
}
