/**
 * The virtual tree of the pools that are shown: folders, names and inode numbers. Immutable; a new commit is a new tree.
 *
 * Every inode number is derived, never counted: a folder's from its path, a file's from its blob's sha256. So the same
 * image has the same number under every name, in every pool, on every node, after every restart, and the kernel's page cache is shared.
 */

import { createHash } from 'node:crypto';
import type { BlobAddress, Catalog, Variant } from '../catalog/catalog.js';
import { fileNameOf, taskFileName } from '../catalog/names.js';
import { type InodeNumber, ROOT_INODE } from './contract.js';

/** Flat view of all plain images by their own file names, as some trainers' resolvers list it. */
export const POOL_VIEW = 'pool';
/** Images derived from another one: their names collide with what those resolvers match, so the pool view leaves them out. */
const DERIVED_DIRECTORY = 'derived';

/** A catalog, and the folder that it is shown in: "" is the root. */
export interface ShownPool {
  readonly name: string;
  readonly catalog: Catalog;
}

export interface FileNode {
  readonly kind: 'file';
  readonly inode: InodeNumber;
  readonly blob: BlobAddress;
  /** Path of the folder that has its first name; further names are hard links. */
  readonly view: string;
  readonly name: string;
  /** Of the commit that is shown there: the modification time. */
  readonly date: Date;
  linkCount: number;
}

export interface DirectoryNode {
  readonly kind: 'directory';
  readonly inode: InodeNumber;
  readonly name: string;
  /** Below the root, "" for the root itself. */
  readonly path: string;
  readonly children: ReadonlyMap<string, Node>;
  /** Folders among the children. */
  readonly folderCount: number;
  /** Whose commit it shows; undefined for the root of several pools. */
  readonly shown: Pick<Catalog, 'repository' | 'commit'> | undefined;
  /** Of that commit, of the latest for the root of several. */
  readonly date: Date;
}

export type Node = FileNode | DirectoryNode;

export interface Tree {
  readonly root: DirectoryNode;
  readonly nodes: ReadonlyMap<InodeNumber, Node>;
  /** Names of files and folders in all, for statfs. */
  readonly nameCount: number;
  /** Names that could not be shown, each with the reason; where they are many, the first of them, and how many more. */
  readonly warnings: readonly string[];
}

/** Where each folder of a pool has a file of one name, its flat view would be warned of as often. */
const MAX_WARNINGS = 10;
const INODE_MASK = (1n << 63n) - 1n;

/** `pools`: at least one, each with its own name. */
export function buildTree(pools: readonly ShownPool[]): Tree {
  const builder = new TreeBuilder(pools);
  for (const pool of pools) builder.addPool(pool);
  const { root, nodes, nameCount, warnings } = builder;
  return { root, nodes, nameCount, warnings: shortened(warnings) };
}

function shortened(warnings: readonly string[]): readonly string[] {
  const more = warnings.length - MAX_WARNINGS;
  return more <= 0 ? warnings : [...warnings.slice(0, MAX_WARNINGS), `and so it is with ${more} more names`];
}

interface GrowingDirectory extends DirectoryNode {
  readonly children: Map<string, Node>;
  folderCount: number;
}

class TreeBuilder {
  readonly root: GrowingDirectory;
  readonly nodes = new Map<InodeNumber, Node>();
  readonly warnings: string[] = [];
  nameCount = 1;
  readonly #files = new Map<string, FileNode>();

  constructor(pools: readonly ShownPool[]) {
    const [only] = pools.filter(({ name }) => name === '');
    const date = new Date(Math.max(...pools.map(({ catalog }) => catalog.date.getTime())));
    const place = { inode: ROOT_INODE, name: '', path: '', shown: only?.catalog, date };
    this.root = { kind: 'directory', ...place, children: new Map(), folderCount: 0 };
    // The root's number is taken before any other can be derived to it.
    this.nodes.set(ROOT_INODE, this.root);
  }

  addPool({ name, catalog }: ShownPool): void {
    const pool = name === '' ? this.root : this.#folder(this.root, name, catalog);
    if (pool === undefined) return;
    for (const variant of catalog.variants.values()) this.#addFiles(pool, variant.name, tasksOf(variant), catalog);
    const where = name === '' ? 'the pool' : `the pool "${name}"`;
    if (pool.children.has(POOL_VIEW)) {
      this.warnings.push(
        `${where} has a variant called "${POOL_VIEW}": it is shown instead of the flat view of all images`,
      );
    } else this.#addFiles(pool, POOL_VIEW, plainImages(catalog), catalog);
  }

  /** `path`: of the folder, below the pool's. */
  #addFiles(
    pool: GrowingDirectory,
    path: string,
    entries: Iterable<readonly [name: string, blob: BlobAddress]>,
    catalog: Catalog,
  ): void {
    let folder: GrowingDirectory | undefined = pool;
    for (const segment of path.split('/')) folder = folder && this.#folder(folder, segment, catalog);
    if (folder === undefined) return;
    for (const [name, blob] of entries) {
      const shown = folder.children.get(name);
      if (shown === undefined) {
        folder.children.set(name, this.#file(blob, folder.path, name, catalog.date));
        this.nameCount += 1;
      } else if (shown.kind === 'directory' || shown.blob.sha256 !== blob.sha256)
        this.warnings.push(`${folder.path}/${name} stands for two images; the first is shown`);
    }
  }

  /** Undefined where a file has the name already. */
  #folder(parent: GrowingDirectory, name: string, catalog: Catalog): GrowingDirectory | undefined {
    const path = parent === this.root ? name : `${parent.path}/${name}`;
    const known = parent.children.get(name);
    // All folders here are made here.
    if (known?.kind === 'directory') return known as GrowingDirectory;
    if (known !== undefined) {
      this.warnings.push(`${path} stands for a file and a folder; the file is shown`);
      return undefined;
    }
    const inode = this.#freeInode(createHash('sha256').update(`view:${path}`).digest('hex'));
    const place = { inode, name, path, shown: catalog, date: catalog.date };
    const folder: GrowingDirectory = { kind: 'directory', ...place, children: new Map(), folderCount: 0 };
    parent.children.set(name, folder);
    parent.folderCount += 1;
    this.nodes.set(inode, folder);
    this.nameCount += 1;
    return folder;
  }

  #file(blob: BlobAddress, view: string, name: string, date: Date): FileNode {
    const known = this.#files.get(blob.sha256);
    if (known !== undefined) {
      known.linkCount += 1;
      return known;
    }
    const inode = this.#freeInode(blob.sha256);
    const node: FileNode = { kind: 'file', inode, blob, view, name, date, linkCount: 1 };
    this.#files.set(blob.sha256, node);
    this.nodes.set(inode, node);
    return node;
  }

  /** The first 63 bits of the digest (hex); where they are taken (or 0), those of its own digest, and so on: the same on every machine. */
  #freeInode(digest: string): InodeNumber {
    for (let candidate = digest; ; candidate = createHash('sha256').update(candidate, 'hex').digest('hex')) {
      const inode = BigInt(`0x${candidate.slice(0, 16)}`) & INODE_MASK;
      if (inode !== 0n && !this.nodes.has(inode)) return inode;
    }
  }
}

function* tasksOf({ tasks }: Variant): Iterable<[string, BlobAddress]> {
  for (const [id, blob] of tasks) yield [taskFileName(id), blob];
}

function* plainImages(catalog: Catalog): Iterable<[string, BlobAddress]> {
  for (const [path, blob] of catalog.images) {
    if (path.split('/', 1)[0] !== DERIVED_DIRECTORY) yield [fileNameOf(path), blob];
  }
}
