/**
 * The tree of a pool, answered as file system calls. Looking is answered from memory; only `open` goes to the blobs.
 *
 * It shows one tree, until it is given another as a whole (`show`). A file that is open then stays what it was,
 * also where its name is gone: its inode is answered for until it is closed everywhere.
 */

import type { BlobCache, Lease } from '../blobs/blob-cache.js';
import type { BlobState } from '../blobs/blob-report.js';
import { taskFileName } from '../catalog/names.js';
import { TmaxError } from '../errors.js';
import type {
  Attributes,
  DirectoryEntry,
  FileSystem,
  FileSystemStatistics,
  InodeNumber,
  OpenFile,
  OpenOptions,
  Timeouts,
} from './contract.js';
import type { DirectoryNode, FileNode, Node, Tree } from './tree.js';

/** What `df` is told, bytes. */
export interface Space {
  readonly totalBytes: number;
  readonly freeBytes: number;
}

export interface PoolFileSystemOptions {
  /** Shown first. */
  readonly tree: Tree;
  readonly blobs: Pick<BlobCache, 'open' | 'state' | 'isPinned'>;
  readonly uid: number;
  readonly gid: number;
  readonly timeouts: Timeouts;
  /** Extended attributes of the root, as where the daemon's control socket is. */
  readonly rootAttributes: ReadonlyMap<string, string>;
  /** Read from memory: a `df` must never wait for a disk. */
  readonly space: () => Space;
}

/** SIFs are runnable, and nothing can be written. */
const MODE = 0o555;
const BLOCK_SIZE_BYTES = 4096;

const FILE_ATTRIBUTES = [
  'architecture',
  'blob',
  'commit',
  'error',
  'pinned',
  'repository',
  'sha256',
  'state',
  'verified',
] as const;
const PREFIX = 'user.tmaxfs.';

/** A caller in an `open` that is not answered yet. */
export interface WaitingOpen {
  /** Of the thread. */
  readonly pid: number;
  /** As "variant/task.sif". */
  readonly name: string;
  /** Since the epoch. */
  readonly sinceMs: number;
}

export class PoolFileSystem implements FileSystem {
  readonly #options: PoolFileSystemOptions;
  /** Inodes that are open, with the number of their handles. */
  readonly #open = new Map<InodeNumber, { readonly node: FileNode; count: number }>();
  readonly #waiting = new Set<WaitingOpen>();
  #tree: Tree;

  constructor(options: PoolFileSystemOptions) {
    this.#options = options;
    this.#tree = options.tree;
  }

  /** Replaces everything that is shown, between two calls of the kernel. */
  show(tree: Tree): void {
    this.#tree = tree;
  }

  /** What is shown now. */
  get tree(): Tree {
    return this.#tree;
  }

  get timeouts(): Timeouts {
    return this.#options.timeouts;
  }

  lookup(parent: InodeNumber, name: string): Attributes {
    const child = this.#directory(parent).children.get(name);
    if (child === undefined) {
      throw new TmaxError('ENOENT', `no "${name}" in the pool at this commit`, {
        source: 'filesystem',
        level: 'debug',
      });
    }
    return this.#attributesOf(child);
  }

  attributes(inode: InodeNumber): Attributes {
    return this.#attributesOf(this.#node(inode));
  }

  list(inode: InodeNumber): readonly DirectoryEntry[] {
    const { children } = this.#directory(inode);
    const attributesOf = (node: Node): Attributes => this.#attributesOf(node);
    return Array.from(children, ([name, node]) => new Entry(name, node, attributesOf));
  }

  open(inode: InodeNumber, options: OpenOptions): OpenFile | Promise<OpenFile> {
    const node = this.#node(inode);
    if (node.kind === 'directory')
      throw new TmaxError('EISDIR', 'a folder can only be listed', { source: 'filesystem', level: 'debug' });
    const opened = this.#options.blobs.open(node.blob, labelOf(node), options.signal);
    if (!(opened instanceof Promise)) return this.#openFile(node, opened);
    const waiting = { pid: options.caller.pid, name: `${node.view}/${node.name}`, sinceMs: Date.now() };
    this.#waiting.add(waiting);
    return opened.finally(() => this.#waiting.delete(waiting)).then((lease) => this.#openFile(node, lease));
  }

  get waitingOpens(): readonly WaitingOpen[] {
    return [...this.#waiting];
  }

  statistics(): FileSystemStatistics {
    const { totalBytes, freeBytes } = this.#options.space();
    return {
      blockSizeBytes: BLOCK_SIZE_BYTES,
      totalBlocks: Math.floor(totalBytes / BLOCK_SIZE_BYTES),
      freeBlocks: Math.floor(Math.max(0, freeBytes) / BLOCK_SIZE_BYTES),
      files: this.#tree.nameCount,
    };
  }

  extendedAttribute(inode: InodeNumber, name: string): Buffer {
    const value = name.startsWith(PREFIX)
      ? this.#extendedAttributes(this.#node(inode)).get(name.slice(PREFIX.length))
      : undefined;
    if (value === undefined)
      throw new TmaxError('ENODATA', `no attribute "${name}"`, { source: 'filesystem', level: 'debug' });
    return Buffer.from(value, 'utf8');
  }

  extendedAttributeNames(inode: InodeNumber): readonly string[] {
    return [...this.#extendedAttributes(this.#node(inode)).keys()].map((name) => PREFIX + name);
  }

  #extendedAttributes(node: Node): ReadonlyMap<string, string> {
    const { blobs, rootAttributes } = this.#options;
    if (node.kind === 'directory') {
      const { shown } = node;
      const own: [string, string][] =
        shown === undefined
          ? []
          : [
              ['commit', shown.commit],
              ['repository', shown.repository],
            ];
      return new Map(node === this.#tree.root ? [...own, ...rootAttributes] : own);
    }
    const state = blobs.state(node.blob.sha256);
    const values: Record<(typeof FILE_ATTRIBUTES)[number], string | undefined> = {
      architecture: state.state === 'ready' ? state.architecture : undefined,
      blob: node.blob.path,
      commit: node.blob.commit,
      error: errorOf(state),
      pinned: blobs.isPinned(node.blob.sha256) ? 'yes' : 'no',
      repository: node.blob.repository,
      sha256: node.blob.sha256,
      state: state.state,
      verified: state.state === 'ready' ? 'yes' : 'no',
    };
    const present = new Map<string, string>();
    for (const name of FILE_ATTRIBUTES) {
      const value = values[name];
      if (value !== undefined) present.set(name, value);
    }
    return present;
  }

  #openFile(node: FileNode, lease: Lease): OpenFile {
    const handles = this.#open.get(node.inode) ?? { node, count: 0 };
    handles.count += 1;
    this.#open.set(node.inode, handles);
    return {
      descriptor: lease.descriptor,
      close: () => {
        handles.count -= 1;
        if (handles.count === 0) this.#open.delete(node.inode);
        lease.release();
      },
    };
  }

  #node(inode: InodeNumber): Node {
    const node = this.#tree.nodes.get(inode) ?? this.#open.get(inode)?.node;
    if (node === undefined) {
      throw new TmaxError('ESTALE', `inode ${inode} is not in the pool at this commit`, {
        source: 'filesystem',
        level: 'debug',
      });
    }
    return node;
  }

  #directory(inode: InodeNumber): DirectoryNode {
    const node = this.#node(inode);
    if (node.kind === 'file')
      throw new TmaxError('ENOTDIR', `"${node.name}" is a file`, { source: 'filesystem', level: 'debug' });
    return node;
  }

  #attributesOf(node: Node): Attributes {
    const { uid, gid } = this.#options;
    // The kernel's protocol has no time before 1970.
    const modifiedSeconds = Math.max(0, Math.floor(node.date.getTime() / 1000));
    const shared = { inode: node.inode, kind: node.kind, mode: MODE, modifiedSeconds, uid, gid };
    if (node.kind === 'file') return { ...shared, sizeBytes: node.blob.sizeBytes, linkCount: node.linkCount };
    return { ...shared, sizeBytes: BLOCK_SIZE_BYTES, linkCount: 2 + node.folderCount };
  }
}

/** Makes its attributes when they are asked for: of tens of thousands, a few are needed at a time. */
class Entry implements DirectoryEntry {
  readonly name: string;
  readonly #node: Node;
  readonly #attributesOf: (node: Node) => Attributes;

  constructor(name: string, node: Node, attributesOf: (node: Node) => Attributes) {
    this.name = name;
    this.#node = node;
    this.#attributesOf = attributesOf;
  }

  get attributes(): Attributes {
    return this.#attributesOf(this.#node);
  }
}

/** Why a blob was or would be refused. */
function errorOf(state: BlobState): string | undefined {
  if (state.state === 'quarantined') return state.record.reason;
  if (state.state === 'ready') return state.refusal;
  return state.state === 'absent' || state.state === 'unproven' ? state.failure : undefined;
}

/** View and task under which a file is named in the log. */
function labelOf(node: FileNode): { variant: string; task: string } {
  const suffix = taskFileName('');
  return { variant: node.view, task: node.name.endsWith(suffix) ? node.name.slice(0, -suffix.length) : node.name };
}
