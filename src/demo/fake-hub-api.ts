/**
 * The Hub's own endpoints: what they answer, header for header, for public, private and gated repositories.
 *
 * Pure: a request in, a reply out. Sending it, with or without a fault, is the business of `fake-hub-reply`.
 */

import type { FakeCdn } from './fake-hub-cdn.js';
import { bodyOf, bytesBody, jsonReply, type Reply, textReply } from './fake-hub-reply.js';
import {
  type CommitTree,
  type FakeFile,
  gitObjectId,
  lfsPointer,
  type ServedRepository,
  treeEntry,
} from './fake-hub-repository.js';

export interface ApiRequest {
  readonly method: string;
  /** Without the path prefix of the endpoint. */
  readonly url: URL;
  readonly token: string | undefined;
  readonly body: Buffer;
}

export interface ApiSettings {
  /** Where clients see this Hub: scheme, host, port and path prefix, no trailing slash. */
  readonly endpoint: string;
  readonly cdnOrigin: string;
  readonly pageSize: number;
  readonly smallFiles: 'redirect' | 'direct';
  /** A mirror that leaves out what it may leave out: X-Linked-*, X-Repo-Commit, ETag. */
  readonly bare: boolean;
}

/** Which of the Hub's two limits a request counts against. */
export type Bucket = 'api' | 'resolvers';

/** A request taken apart: what it is about, and how to answer it. */
export interface Route {
  readonly bucket: Bucket;
  /** Path in the repository, for requests about one file. */
  readonly file: string | undefined;
  answer(): Reply;
}

/** The Hub takes no more paths than this in one `paths-info`. */
const MAX_PATHS = 1000;

export class FakeApi {
  readonly #repositories: ReadonlyMap<string, ServedRepository>;
  readonly #cdn: FakeCdn;
  readonly #settings: ApiSettings;

  constructor(repositories: ReadonlyMap<string, ServedRepository>, cdn: FakeCdn, settings: ApiSettings) {
    this.#repositories = repositories;
    this.#cdn = cdn;
    this.#settings = settings;
  }

  route(request: ApiRequest): Route {
    const segments = request.url.pathname.split('/').slice(1).map(decodeSegment);
    const [first = '', second = ''] = segments;
    if (first === 'api' && second === 'datasets') {
      const [owner = '', name = '', what = '', revision = 'main', ...rest] = segments.slice(2);
      const answer = () => this.#api(`${owner}/${name}`, what, revision, rest.join('/'), request);
      return { bucket: 'api', file: undefined, answer };
    }
    if (first === 'api' && second === 'whoami-v2') {
      return { bucket: 'api', file: undefined, answer: () => this.#whoami(request.token) };
    }
    if (first === 'api' && second === 'resolve-cache') {
      const [owner = '', name = '', commit = '', ...rest] = segments.slice(3);
      const file = rest.join('/');
      return { bucket: 'resolvers', file, answer: () => this.#cached(`${owner}/${name}`, commit, file, request) };
    }
    const [, owner = '', name = '', what = '', revision = '', ...rest] = segments;
    const file = rest.join('/');
    if (first === 'datasets' && (what === 'resolve' || what === 'raw') && file !== '') {
      const answer = () => this.#download(`${owner}/${name}`, what, revision, file, request);
      return { bucket: 'resolvers', file, answer };
    }
    return { bucket: 'api', file: undefined, answer: () => errorReply(404, 'Sorry, we can’t find this page.') };
  }

  #whoami(token: string | undefined): Reply {
    const isKnown = token !== undefined && this.#isKnown(token);
    return isKnown ? jsonReply({ type: 'user', name: 'a-reader' }) : errorReply(401, 'Invalid username or password.');
  }

  #isKnown(token: string): boolean {
    return [...this.#repositories.values()].some(({ readers }) => readers.has(token));
  }

  #api(name: string, what: string, revision: string, path: string, request: ApiRequest): Reply {
    const found = this.#find(name, revision, request.token);
    if ('refused' in found) return found.refused;
    const { repository, tree } = found;
    switch (`${request.method} ${what}`) {
      case 'GET ':
      case 'GET revision':
        return jsonReply(info(repository, tree, request.url.searchParams.getAll('expand')));
      case 'GET tree':
        return this.#tree(repository, tree, revision, path, request.url);
      case 'POST paths-info':
        return pathsInfo(tree, request.body);
      case 'GET refs':
        return jsonReply({
          branches: refs('heads', repository.branches),
          converts: [],
          tags: refs('tags', repository.tags),
        });
      default:
        return errorReply(404, 'Not Found');
    }
  }

  #tree(repository: ServedRepository, tree: CommitTree, revision: string, folder: string, url: URL): Reply {
    const recursive = isTrue(url.searchParams.get('recursive'));
    const entries = tree.entries(folder, recursive);
    if (entries.length === 0 && folder !== '') return entryNotFound(folder, tree);
    const offset = Number(Buffer.from(url.searchParams.get('cursor') ?? 'MA', 'base64url').toString());
    const next = offset + this.#settings.pageSize;
    const headers: Record<string, string> = {};
    if (next < entries.length) {
      const query = new URLSearchParams(url.searchParams);
      query.set('cursor', Buffer.from(String(next)).toString('base64url'));
      const path = folder.split('/').map(encodeURIComponent).join('/');
      const place = `${repository.name}/tree/${encodeURIComponent(revision)}${path === '' ? '' : `/${path}`}`;
      headers['link'] = `<${this.#settings.endpoint}/api/datasets/${place}?${query}>; rel="next"`;
    }
    return jsonReply(entries.slice(offset, next), 200, headers);
  }

  #download(name: string, what: 'resolve' | 'raw', revision: string, path: string, request: ApiRequest): Reply {
    if (request.method !== 'GET' && request.method !== 'HEAD') return errorReply(405, 'Method Not Allowed');
    const found = this.#findFile(name, revision, path, request.token);
    if ('refused' in found) return found.refused;
    const { tree, file } = found;
    if (what === 'raw' && file.lfs) {
      const headers = this.#headers(file, tree, { 'content-type': 'text/plain' });
      return { status: 200, headers, body: bytesBody(lfsPointer(file)), ranged: true };
    }
    if (file.lfs) {
      const location = this.#settings.cdnOrigin + this.#cdn.sign(name, file);
      const linked: Record<string, string> = this.#settings.bare
        ? {}
        : { 'x-linked-size': String(file.sizeBytes), 'x-linked-etag': `"${file.sha256}"` };
      return textReply(302, `Found. Redirecting to ${location}`, { ...this.#headers(file, tree), ...linked, location });
    }
    if (what === 'raw' || this.#settings.smallFiles === 'direct') return this.#content(file, tree);
    const encoded = path.split('/').map(encodeURIComponent).join('/');
    const prefix = new URL(this.#settings.endpoint).pathname.replace(/\/$/, '');
    const location = `${prefix}/api/resolve-cache/datasets/${name}/${tree.commit}/${encoded}`;
    return textReply(307, `Temporary Redirect. Redirecting to ${location}`, { ...this.#headers(file, tree), location });
  }

  #cached(name: string, commit: string, path: string, request: ApiRequest): Reply {
    const found = this.#findFile(name, commit, path, request.token);
    return 'refused' in found ? found.refused : this.#content(found.file, found.tree);
  }

  #content(file: FakeFile, tree: CommitTree): Reply {
    const body = bodyOf(file);
    if (body === undefined) return errorReply(500, 'Internal Error - this file has no content');
    const type = file.path.endsWith('.json') ? 'application/json' : 'application/octet-stream';
    const headers = this.#headers(file, tree, { 'content-type': type, 'accept-ranges': 'bytes' });
    return { status: 200, headers, body, ranged: true };
  }

  #headers(file: FakeFile, tree: CommitTree, more: Record<string, string> = {}): Record<string, string> {
    if (this.#settings.bare) return more;
    return { 'x-repo-commit': tree.commit, etag: `"${file.lfs ? file.sha256 : gitObjectId(file)}"`, ...more };
  }

  /** The repository at a revision, or the answer that says why not. */
  #find(name: string, revision: string, token: string | undefined): Found | { readonly refused: Reply } {
    if (token !== undefined && !this.#isKnown(token))
      return { refused: errorReply(401, 'Invalid credentials in Authorization header') };
    const repository = this.#repositories.get(name);
    const hidden = repository?.access === 'private' && (token === undefined || !repository.readers.has(token));
    if (repository === undefined || hidden) {
      // The Hub does not tell the anonymous what exists.
      const status = token === undefined ? 401 : 404;
      const message = token === undefined ? 'Invalid username or password.' : 'Repository not found';
      return { refused: errorReply(status, message, 'RepoNotFound') };
    }
    const tree = repository.resolve(revision);
    if (tree === undefined) return { refused: errorReply(404, `Invalid rev id: ${revision}`, 'RevisionNotFound') };
    return { repository, tree };
  }

  #findFile(
    name: string,
    revision: string,
    path: string,
    token: string | undefined,
  ): (Found & { readonly file: FakeFile }) | { readonly refused: Reply } {
    const found = this.#find(name, revision, token);
    if ('refused' in found) return found;
    const { repository, tree } = found;
    if (repository.access === 'gated' && (token === undefined || !repository.readers.has(token))) {
      const message = `Access to dataset ${name} is restricted. You must have access to it and be authenticated.`;
      return { refused: errorReply(token === undefined ? 401 : 403, message, 'GatedRepo') };
    }
    const file = tree.files.get(path);
    return file === undefined ? { refused: entryNotFound(path, tree) } : { ...found, file };
  }
}

interface Found {
  readonly repository: ServedRepository;
  readonly tree: CommitTree;
}

/** With `expand`, only the fields asked for; without, the usual ones. */
function info(repository: ServedRepository, tree: CommitTree, expand: readonly string[]): unknown {
  const identity = {
    _id: Buffer.from(repository.name).toString('hex').slice(0, 24).padEnd(24, '0'),
    id: repository.name,
  };
  const fields: Record<string, unknown> = {
    author: repository.name.split('/')[0],
    sha: tree.commit,
    lastModified: tree.date.toISOString(),
    createdAt: tree.date.toISOString(),
    private: repository.access === 'private',
    gated: repository.access === 'gated' ? 'auto' : false,
    disabled: false,
    downloads: 0,
    likes: 0,
    tags: [],
  };
  if (expand.length === 0) {
    const siblings = [...tree.files.keys()].map((path) => ({ rfilename: path }));
    return { ...identity, ...fields, siblings };
  }
  return { ...identity, ...Object.fromEntries(Object.entries(fields).filter(([key]) => expand.includes(key))) };
}

function pathsInfo(tree: CommitTree, body: Buffer): Reply {
  let paths: unknown;
  try {
    const parsed: unknown = JSON.parse(body.toString());
    paths = typeof parsed === 'object' && parsed !== null && 'paths' in parsed ? parsed.paths : undefined;
  } catch {
    return errorReply(400, 'Invalid JSON');
  }
  if (!Array.isArray(paths)) return errorReply(400, '"paths" is required');
  if (paths.length > MAX_PATHS) return errorReply(413, `Too many paths, at most ${MAX_PATHS}`);
  const files = paths.map((path) => tree.files.get(String(path))).filter((file) => file !== undefined);
  return jsonReply(files.map(treeEntry));
}

function refs(kind: 'heads' | 'tags', names: ReadonlyMap<string, string>): unknown {
  return [...names].map(([name, targetCommit]) => ({ name, ref: `refs/${kind}/${name}`, targetCommit }));
}

function errorReply(status: number, message: string, code?: string): Reply {
  const headers: Record<string, string> = { 'x-error-message': message.replaceAll(/[^\x20-\x7e]/g, '?') };
  if (code !== undefined) headers['x-error-code'] = code;
  return jsonReply({ error: message }, status, headers);
}

function entryNotFound(path: string, tree: CommitTree): Reply {
  return errorReply(404, `${path} does not exist on "${tree.commit}"`, 'EntryNotFound');
}

function isTrue(value: string | null): boolean {
  return value === 'true' || value === '1';
}

function decodeSegment(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
