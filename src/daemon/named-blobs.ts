/** Which blobs a user means by names in the mount: files, folders, tasks, or a digest. */

import { taskFileName } from '../catalog/names.js';
import type { DirectoryNode, Node, Tree } from '../filesystem/tree.js';

export interface NamedBlob {
  readonly sha256: string;
  /** A name of it in the mount, as "variant/task.sif"; its digest where the mount does not show it. */
  readonly name: string;
}

export interface NamedBlobs {
  readonly blobs: readonly NamedBlob[];
  /** Names that stand for nothing. */
  readonly unknown: readonly string[];
}

const SHA256 = /^[0-9a-f]{64}$/;

/**
 * Each name is a path below the mount point ("solvable/x.sif", "solvable"; "" stands for all of it), with or without the suffix, or what
 * such paths end in ("x": wherever it is shown), or a sha256. One that is not shown counts where it `isKnown`.
 */
export function namedBlobs(
  { root }: Pick<Tree, 'root'>,
  names: readonly string[],
  isKnown: (sha256: string) => boolean,
): NamedBlobs {
  const blobs = new Map<string, NamedBlob>();
  const folders = [...foldersBelow(root)];
  const add = (sha256: string, name: string): boolean => {
    if (!blobs.has(sha256)) blobs.set(sha256, { sha256, name });
    return true;
  };
  const addNode = (node: Node | undefined, name: string): boolean => {
    if (node === undefined) return false;
    if (node.kind === 'file') return add(node.blob.sha256, name);
    for (const folder of foldersBelow(node)) {
      for (const [file, sha256] of filesOf(folder)) add(sha256, pathOf(folder, file));
    }
    return true;
  };
  const addPath = (folder: DirectoryNode, segments: readonly string[]): boolean => {
    const last = segments.at(-1) ?? '';
    const parent = segments.slice(0, -1).reduce<Node | undefined>(childOf, folder);
    if (parent?.kind !== 'directory') return false;
    const name = parent.children.has(last) ? last : taskFileName(last);
    return addNode(parent.children.get(name), pathOf(parent, name));
  };
  const addDigest = (sha256: string): boolean => {
    for (const folder of folders) {
      for (const [name, digest] of filesOf(folder)) if (digest === sha256) return add(sha256, pathOf(folder, name));
    }
    return isKnown(sha256) && add(sha256, sha256);
  };
  const addNamed = (name: string): boolean => {
    const segments = name.split('/').filter((segment) => segment !== '');
    if (segments.length === 0) return addNode(root, '');
    if (addPath(root, segments)) return true;
    if (SHA256.test(name)) return addDigest(name);
    return folders.map((folder) => addPath(folder, segments)).some(Boolean);
  };
  const unknown = names.filter((name) => !addNamed(name));
  return { blobs: [...blobs.values()], unknown };
}

function childOf(node: Node | undefined, name: string): Node | undefined {
  return node?.kind === 'directory' ? node.children.get(name) : undefined;
}

function pathOf({ path }: DirectoryNode, name: string): string {
  return path === '' ? name : `${path}/${name}`;
}

/** Itself first. */
function* foldersBelow(folder: DirectoryNode): Iterable<DirectoryNode> {
  yield folder;
  for (const child of folder.children.values()) if (child.kind === 'directory') yield* foldersBelow(child);
}

function* filesOf(folder: DirectoryNode): Iterable<[name: string, sha256: string]> {
  for (const [name, node] of folder.children) if (node.kind === 'file') yield [name, node.blob.sha256];
}
