/**
 * Where a directory may have an image, by the layouts that are in use:
 *
 *   blobs/<2 hex>/<sha256>                                     a cache of tmaxfs
 *   <kind>--<owner>--<name>/blobs/<sha256>                     the Hub's own cache, whose folders of commits hold links to
 *   <kind>--<owner>--<name>/snapshots/<commit>/<path>          its blobs; HF_HUB_CACHE, or HF_HOME with `hub` below it,
 *   blobs/<sha256>, snapshots/<commit>/<path>                  or one repository of it
 *   <path>                                                     what `snapshot_download(local_dir=...)` has made, or a copy
 *
 * Source of the Hub's layout: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
 */

import type { BlobAddress } from './source.js';

const KINDS = ['datasets', 'models'] as const;

/** Paths relative to the directory, the surest first. */
export function placesOf({ repository, commit, path, sha256 }: BlobAddress): readonly string[] {
  const inRepository = [`blobs/${sha256}`, `snapshots/${commit}/${path}`];
  const folders = KINDS.map((kind) => `${kind}--${repository.replaceAll('/', '--')}`);
  const inHubCache = folders.flatMap((folder) => inRepository.map((place) => `${folder}/${place}`));
  return [
    `blobs/${sha256.slice(0, 2)}/${sha256}`,
    ...inHubCache,
    ...inHubCache.map((place) => `hub/${place}`),
    ...inRepository,
    path,
  ];
}
