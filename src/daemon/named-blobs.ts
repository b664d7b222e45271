/** Which blobs a user means by names in the mount: files, folders, tasks, or a digest. */

import type { DirectoryNode, Tree } from '../filesystem/tree.js';

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
const SUFFIX = '.sif';

/**
 * Each name is a path below the mount point ("solvable/x.sif", "solvable"; "" stands for all of it), a task without its
 * folder or its suffix ("x": wherever it is shown), or a sha256. One that is not shown counts where it `isKnown`.
 */
export function namedBlobs(
  { root }: Pick<Tree, 'root'>,
  names: readonly string[],
  isKnown: (sha256: string) => boolean,
): NamedBlobs {
  const blobs = new Map<string, NamedBlob>();
  const add = (sha256: string, name: string): boolean => {
    if (!blobs.has(sha256)) blobs.set(sha256, { sha256, name });
    return true;
  };
  const addFolder = (folder: DirectoryNode): boolean => {
    for (const [name, sha256] of filesOf(folder)) add(sha256, `${folder.name}/${name}`);
    return true;
  };
  const addFile = (folder: DirectoryNode, name: string): boolean => {
    const file = folder.children.has(name) ? name : `${name}${SUFFIX}`;
    const node = folder.children.get(file);
    return node?.kind === 'file' && add(node.blob.sha256, `${folder.name}/${file}`);
  };
  const addDigest = (sha256: string): boolean => {
    for (const folder of foldersOf(root)) {
      for (const [name, digest] of filesOf(folder)) if (digest === sha256) return add(sha256, `${folder.name}/${name}`);
    }
    return isKnown(sha256) && add(sha256, sha256);
  };
  const addNamed = (name: string): boolean => {
    const [first = '', file, ...deeper] = name.split('/').filter((segment) => segment !== '');
    const folder = foldersOf(root).find(({ name: view }) => view === first);
    if (deeper.length > 0) return false;
    if (file !== undefined) return folder !== undefined && addFile(folder, file);
    if (folder !== undefined) return addFolder(folder);
    if (first === '') return foldersOf(root).map(addFolder).some(Boolean);
    if (SHA256.test(first)) return addDigest(first);
    return foldersOf(root)
      .map((view) => addFile(view, first))
      .some(Boolean);
  };
  const unknown = names.filter((name) => !addNamed(name));
  return { blobs: [...blobs.values()], unknown };
}

function foldersOf(root: DirectoryNode): DirectoryNode[] {
  return [...root.children.values()].filter((node) => node.kind === 'directory');
}

function* filesOf(folder: DirectoryNode): Iterable<[name: string, sha256: string]> {
  for (const [name, node] of folder.children) if (node.kind === 'file') yield [name, node.blob.sha256];
}
