/**
 * What the fake Hub serves: dataset repositories with commits, branches and files, and who may read them.
 *
 * Commits are immutable; a branch may be moved at any time, as on the Hub. Files need no content: a file without `body`
 * is listed and resolved like any other, only its bytes can't be had (a pool of 2 TB fits in a test).
 */

import { createHash } from 'node:crypto';
import { TmaxError } from '../errors.js';

export interface FakeFile {
  /** Path in the repository, `/` between segments. */
  readonly path: string;
  readonly sizeBytes: number;
  /** What the listing claims, 64 hex digits; not checked against the body, so that tests can lie. */
  readonly sha256: string;
  /** In memory, or on disk and streamed from there. */
  readonly body?: Buffer | { readonly file: string };
  /** Large files are served by the CDN, small ones by the Hub itself. */
  readonly lfs: boolean;
}

export interface FakeCommit {
  /** 40 hex digits. */
  readonly commit: string;
  readonly date: Date;
  readonly files: readonly FakeFile[];
}

export interface FakeRepository {
  /** `owner/name`. */
  readonly name: string;
  readonly commits: readonly FakeCommit[];
  /** Branch name -> commit. */
  readonly branches: Readonly<Record<string, string>>;
  /** Tag name -> commit. */
  readonly tags?: Readonly<Record<string, string>>;
  /** Default `public`. A gated repository can be listed by everyone and downloaded from by its readers. */
  readonly access?: 'public' | 'private' | 'gated';
  /** Tokens that may read a private or gated repository. */
  readonly readers?: readonly string[];
}

export interface SimpleRepositoryOptions {
  /** Default: derived from the files. */
  readonly commit?: string;
  readonly date?: Date;
  readonly access?: 'public' | 'private' | 'gated';
  readonly readers?: readonly string[];
}

const DEFAULT_COMMIT_DATE = new Date('2026-01-02T03:04:05.000Z');

/** A repository with one commit, on branch `main`. */
export function repositoryOf(
  name: string,
  files: readonly FakeFile[],
  { commit, date = DEFAULT_COMMIT_DATE, ...rest }: SimpleRepositoryOptions = {},
): FakeRepository {
  const id = commit ?? sha1(files.map((file) => `${file.path} ${file.sha256} ${file.sizeBytes}\n`).join(''));
  return { name, commits: [{ commit: id, date, files }], branches: { main: id }, ...rest };
}

/** A file whose size and digest are those of its content. */
export function fileOf(path: string, body: Buffer, { lfs = true }: { readonly lfs?: boolean } = {}): FakeFile {
  const sha256 = createHash('sha256').update(body).digest('hex');
  return { path, sizeBytes: body.length, sha256, body, lfs };
}

/** A commit as requests see it: files by path, in the order of a listing. */
export class CommitTree {
  readonly commit: string;
  readonly date: Date;
  readonly files: ReadonlyMap<string, FakeFile>;

  constructor({ commit, date, files }: FakeCommit) {
    this.commit = commit;
    this.date = date;
    const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
    this.files = new Map(sorted.map((file) => [file.path, file]));
  }

  /** Entries of a folder ("" for the root), directories among them, as `GET /tree` orders them: by path. */
  entries(folder: string, recursive: boolean): TreeEntry[] {
    const prefix = folder === '' ? '' : `${folder}/`;
    const entries: TreeEntry[] = [];
    const seen = new Set<string>();
    for (const file of this.files.values()) {
      if (!file.path.startsWith(prefix)) continue;
      const segments = file.path.slice(prefix.length).split('/');
      for (let depth = 1; depth < segments.length && (recursive || depth === 1); depth += 1) {
        const directory = prefix + segments.slice(0, depth).join('/');
        if (!seen.has(directory)) entries.push({ type: 'directory', oid: sha1(directory), size: 0, path: directory });
        seen.add(directory);
      }
      if (recursive || segments.length === 1) entries.push(treeEntry(file));
    }
    return entries;
  }
}

export interface TreeEntry {
  readonly type: 'file' | 'directory';
  /** Git object id. */
  readonly oid: string;
  readonly size: number;
  readonly path: string;
  readonly lfs?: { readonly oid: string; readonly size: number; readonly pointerSize: number };
}

/** A file as `GET /tree` and `POST /paths-info` describe it. */
export function treeEntry(file: FakeFile): TreeEntry {
  const entry = { type: 'file', oid: gitObjectId(file), size: file.sizeBytes, path: file.path } as const;
  if (!file.lfs) return entry;
  return { ...entry, lfs: { oid: file.sha256, size: file.sizeBytes, pointerSize: lfsPointer(file).length } };
}

/** Git's name of what it stores: the content itself, or the pointer to it. */
export function gitObjectId(file: FakeFile): string {
  const stored = file.lfs ? lfsPointer(file) : file.body;
  if (!Buffer.isBuffer(stored)) return sha1(file.sha256);
  return createHash('sha1').update(`blob ${stored.length}\0`).update(stored).digest('hex');
}

/** The text that git stores in place of a large file, as the specification of Git LFS pointer files has it. */
export function lfsPointer(file: FakeFile): Buffer {
  return Buffer.from(`version https://git-lfs.github.com/spec/v1\noid sha256:${file.sha256}\nsize ${file.sizeBytes}\n`);
}

/** A repository while it is served: its refs move, commits are added. */
export class ServedRepository {
  readonly name: string;
  readonly access: 'public' | 'private' | 'gated';
  readonly branches: Map<string, string>;
  readonly tags: Map<string, string>;
  readonly readers: Set<string>;
  readonly #commits = new Map<string, CommitTree>();

  constructor({ name, commits, branches, tags = {}, access = 'public', readers = [] }: FakeRepository) {
    this.name = name;
    this.access = access;
    this.branches = new Map(Object.entries(branches));
    this.tags = new Map(Object.entries(tags));
    this.readers = new Set(readers);
    for (const commit of commits) this.#commits.set(commit.commit, new CommitTree(commit));
  }

  /** Adds a commit and points a branch to it: what a push to the Hub does. */
  push(commit: FakeCommit, branch = 'main'): void {
    this.#commits.set(commit.commit, new CommitTree(commit));
    this.branches.set(branch, commit.commit);
  }

  /** The commit behind a branch, a tag or a full commit id, if there is one. */
  resolve(revision: string): CommitTree | undefined {
    const name = revision === 'HEAD' ? 'main' : revision.replace(/^refs\/(heads|tags)\//, '');
    return this.#commits.get(this.branches.get(name) ?? this.tags.get(name) ?? name);
  }

  /** The commit of branch `main`. Errors: ENOENT. */
  get head(): CommitTree {
    const head = this.resolve('main');
    if (head === undefined) throw new TmaxError('ENOENT', `the repository ${this.name} has no branch main`);
    return head;
  }
}

function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex');
}
