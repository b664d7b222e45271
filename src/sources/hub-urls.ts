/** URLs of the Hub, each segment encoded, and the names that may stand in them. */

import { TmaxError } from '../errors.js';
import { endpointText } from './hub-settings.js';

/** `owner/name`, or the bare name of the Hub's first datasets. */
const REPOSITORY = /^(?:[A-Za-z0-9][\w.-]*\/)?[A-Za-z0-9][\w.-]*$/;
const COMMIT = /^[0-9a-f]{40}$/;

/** Errors: EINVAL. */
export function checkRepository(repository: string): void {
  if (REPOSITORY.test(repository) && !repository.includes('..')) return;
  throw new TmaxError('EINVAL', `"${repository}" is not a dataset repository: expected owner/name`, { source: 'hub' });
}

/** Every request is pinned to a commit; a branch in its place would let the tree change under a catalog. Errors: EINVAL. */
export function checkCommit(commit: string): void {
  if (COMMIT.test(commit)) return;
  throw new TmaxError('EINVAL', `"${commit}" is not a commit: expected 40 hex digits`, { source: 'hub' });
}

/** A path of a repository as it stands in a URL. Errors: EINVAL no path of a file. */
export function encodedPath(path: string): string {
  const segments = path.split('/');
  // URL parsing would take "." and ".." for steps, even encoded.
  if (segments.some((segment) => segment === '' || segment === '.' || segment === '..')) {
    throw new TmaxError('EINVAL', `"${path}" is not the path of a file in a repository`, { source: 'hub' });
  }
  return segments.map(encodeURIComponent).join('/');
}

/** Where the Hub says where a file's bytes are. Errors: EINVAL a name that can't be one. */
export function resolveUrl(endpoint: URL, repository: string, commit: string, path: string): URL {
  checkRepository(repository);
  checkCommit(commit);
  return new URL(`${endpointText(endpoint)}/datasets/${repository}/resolve/${commit}/${encodedPath(path)}`);
}
