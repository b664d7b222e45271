/**
 * What makes a folder a cache of tmaxfs, also to backup programs: a file of this name and content. All that is unknown in such a
 * folder may be removed, and its blobs have a limit, leases and owners. Source of the form: https://bford.info/cachedir/
 */

export const CACHE_TAG_NAME = 'CACHEDIR.TAG';
export const CACHE_TAG =
  'Signature: 8a477f597d28d172789f06886806bc55\n# Cache of tmaxfs: images that can be fetched again.\n';
