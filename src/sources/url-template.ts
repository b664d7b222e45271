/**
 * URLs with places for what names a blob, as `https://cache.example/{path}`: how a store of files is told where its blobs lie.
 *
 *   {sha256}      the digest, 64 hex digits; {sha256:2} its first two (the prefix modifier of RFC 6570, 2.4.1): a cache of tmaxfs
 *                 has `blobs/{sha256:2}/{sha256}`
 *   {path}        the path in the repository, each segment encoded; {repo} (`owner/name`) and {commit} go with it, as in the
 *                 Hub's own `/datasets/{repo}/resolve/{commit}/{path}`
 */

import { TmaxError } from '../errors.js';
import { checkCommit, checkRepository, encodedPath } from './hub-urls.js';
import type { BlobAddress } from './source.js';

export interface UrlTemplate {
  /** As it may be shown to anyone: without a query, which may hold a secret. */
  readonly shown: string;
  /** Whether images of several repositories have URLs of their own, also where their paths are the same. */
  readonly separatesRepositories: boolean;
  /** Errors: EINVAL a name that can't stand in a URL. */
  urlOf(blob: BlobAddress): URL;
}

const PLACES: ReadonlyMap<string, (blob: BlobAddress) => string> = new Map([
  ['sha256', ({ sha256 }: BlobAddress) => sha256],
  ['sha256:2', ({ sha256 }: BlobAddress) => sha256.slice(0, 2)],
  ['path', ({ path }: BlobAddress) => encodedPath(path)],
  ['repo', ({ repository }: BlobAddress) => checkedRepository(repository)],
  ['commit', ({ commit }: BlobAddress) => checkedCommit(commit)],
]);
const PLACE = /\{([^{}]*)\}/g;

/** Errors: EINVAL, without repeating what may hold a password. */
export function parseUrlTemplate(text: string): UrlTemplate {
  const refusal = (words: string): TmaxError => {
    // A password may have any character in it, so that nothing beside an "@" is known to be none.
    const which = text.includes('@') ? 'this URL' : `"${text.replace(/[?#].*$/s, '?...')}"`;
    return new TmaxError('EINVAL', `${which} ${words}`, { source: 'settings' });
  };
  const [, base = ''] = /^(https?:\/\/[^/?#{}]+)\//i.exec(text) ?? [];
  if (!URL.canParse(base)) throw refusal('is no http(s)://host/path with {sha256} or {path} in it');
  const { username, password } = new URL(base);
  if (username !== '' || password !== '' || base.includes('@')) throw refusal('may hold no user and password');
  if (text.includes('#')) throw refusal('may hold no fragment ("#")');
  const places = [...text.matchAll(PLACE)].map(([, name = '']) => name);
  const unknown = places.find((name) => !PLACES.has(name));
  if (unknown !== undefined || /[{}]/.test(text.replaceAll(PLACE, ''))) {
    throw refusal(`has places for ${[...PLACES.keys()].map((name) => `{${name}}`).join(', ')} alone`);
  }
  if (!places.includes('sha256') && !places.includes('path')) {
    throw refusal('needs {sha256} or {path}: else all images are one URL');
  }
  return {
    separatesRepositories: ['sha256', 'repo', 'commit'].some((name) => places.includes(name)),
    shown: text.replace(/\?.*$/s, '?...'),
    urlOf: (blob) => new URL(text.replaceAll(PLACE, (_place, name: string) => PLACES.get(name)?.(blob) ?? '')),
  };
}

function checkedRepository(repository: string): string {
  checkRepository(repository);
  return repository;
}

function checkedCommit(commit: string): string {
  checkCommit(commit);
  return commit;
}
