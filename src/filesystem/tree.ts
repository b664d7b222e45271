/**
 * The virtual tree of one catalog: folders, names and inode numbers. Immutable; a new commit is a new tree.
 *
 * Every inode number is derived, never counted: a folder's from its name, a file's from its blob's sha256. So the same
 * image has the same number under every name, on every node, after every restart, and the kernel's page cache is shared.
 */

import { createHash } from 'node:crypto';
import { type BlobAddress, type Catalog, fileNameOf, taskFileName, type Variant } from '../catalog/catalog.js';
import { type InodeNumber, ROOT_INODE } from './contract.js';

/** Flat view of all plain images by their own file names, as some trainers' resolvers list it. */
export const POOL_VIEW = 'pool';
/** Images derived from another one: their names collide with what those resolvers match, so the pool view leaves them out. */
const DERIVED_DIRECTORY = 'derived';

export interface FileNode {
  readonly kind: 'file';
  readonly inode: InodeNumber;
  readonly blob: BlobAddress;
  /** Where its first name is; further names are hard links. */
  readonly view: string;
  readonly name: string;
  linkCount: number;
}

export interface DirectoryNode {
  readonly kind: 'directory';
  readonly inode: InodeNumber;
  readonly name: string;
  readonly children: ReadonlyMap<string, Node>;
}

export type Node = FileNode | DirectoryNode;

export interface Tree {
  readonly root: DirectoryNode;
  readonly nodes: ReadonlyMap<InodeNumber, Node>;
  /** Names of files and folders in all, for statfs. */
  readonly nameCount: number;
  /** Names that could not be shown, each with the reason. */
  readonly warnings: readonly string[];
}

const INODE_MASK = (1n << 63n) - 1n;

export function buildTree(catalog: Catalog): Tree {
  const nodes = new Map<InodeNumber, Node>();
  // By the address itself: the catalog has one of each blob.
  const files = new Map<BlobAddress, FileNode>();
  const views = new Map<string, Node>();
  const warnings: string[] = [];
  let nameCount = 1;

  const fileNode = (blob: BlobAddress, view: string, name: string): FileNode => {
    const known = files.get(blob);
    if (known !== undefined) {
      known.linkCount += 1;
      return known;
    }
    const inode = freeInode(nodes, blob.sha256);
    const node: FileNode = { kind: 'file', inode, blob, view, name, linkCount: 1 };
    files.set(blob, node);
    nodes.set(inode, node);
    return node;
  };
  const addView = (view: string, entries: Iterable<[string, BlobAddress]>): void => {
    const children = new Map<string, Node>();
    for (const [name, blob] of entries) {
      if (children.has(name)) warnings.push(`${view}/${name} stands for two images; the first is shown`);
      else children.set(name, fileNode(blob, view, name));
    }
    const inode = freeInode(nodes, createHash('sha256').update(`view:${view}`).digest('hex'));
    const node: DirectoryNode = { kind: 'directory', inode, name: view, children };
    nodes.set(inode, node);
    views.set(view, node);
    nameCount += 1 + children.size;
  };

  // The root's number is taken before any other can be derived to it.
  const root: DirectoryNode = { kind: 'directory', inode: ROOT_INODE, name: '', children: views };
  nodes.set(ROOT_INODE, root);
  for (const variant of catalog.variants.values()) {
    addView(variant.name, tasksOf(variant));
  }
  if (views.has(POOL_VIEW)) {
    warnings.push(`the pool has a variant called "${POOL_VIEW}": it is shown instead of the flat view of all images`);
  } else {
    addView(POOL_VIEW, plainImages(catalog));
  }
  return { root, nodes, nameCount, warnings };
}

function* tasksOf({ tasks }: Variant): Iterable<[string, BlobAddress]> {
  for (const [id, blob] of tasks) yield [taskFileName(id), blob];
}

function* plainImages(catalog: Catalog): Iterable<[string, BlobAddress]> {
  for (const [path, blob] of catalog.images) {
    if (path.split('/', 1)[0] !== DERIVED_DIRECTORY) yield [fileNameOf(path), blob];
  }
}

/** The first 63 bits of the digest (hex); where they are taken (or 0), those of its own digest, and so on: the same on every machine. */
function freeInode(taken: ReadonlyMap<InodeNumber, Node>, digest: string): InodeNumber {
  for (let candidate = digest; ; candidate = createHash('sha256').update(candidate, 'hex').digest('hex')) {
    const inode = BigInt(`0x${candidate.slice(0, 16)}`) & INODE_MASK;
    if (inode !== 0n && !taken.has(inode)) return inode;
  }
}
