/** A file system whose tree is in memory and whose files are files of the local disk. Opens wait where told to. */

import { closeSync, openSync, statSync } from 'node:fs';
import { TmaxError } from '../../src/errors.js';
import {
  type Attributes,
  type DirectoryEntry,
  type FileSystem,
  type FileSystemStatistics,
  type InodeNumber,
  type OpenFile,
  type OpenOptions,
  ROOT_INODE,
  type Timeouts,
} from '../../src/filesystem/contract.js';

export interface MemoryFile {
  /** As "easy/one.sif"; its directories come into being with it. */
  readonly path: string;
  /** The local file that holds its content. Two paths with one source are two names of one inode. */
  readonly source: string;
  /** `ready`: opens at once; `waits`: opens when `finish` is called; `fails`: EBADMSG. Default `ready`. */
  readonly behaviour?: 'ready' | 'waits' | 'fails';
}

export const MODIFIED_SECONDS = 1_700_000_000;
export const STATE_ATTRIBUTE = 'user.tmaxfs.state';
/** A value long enough for tests with a buffer that is too small. */
export const STATE_VALUE = 'ready';

interface Directory {
  readonly inode: InodeNumber;
  readonly children: Map<string, InodeNumber>;
}

interface File {
  readonly inode: InodeNumber;
  readonly source: string;
  behaviour: 'ready' | 'waits' | 'fails';
  linkCount: number;
}

interface Waiter {
  readonly file: File;
  readonly settle: () => void;
}

export class MemoryFileSystem implements FileSystem {
  readonly timeouts: Timeouts;
  /** What happened, in order: "open", "aborted", "close". */
  readonly events: string[] = [];
  /** Descriptors that are open for a file that the driver has not closed yet. */
  openDescriptors = 0;
  readonly #directories = new Map<InodeNumber, Directory>();
  readonly #files = new Map<InodeNumber, File>();
  readonly #waiters = new Set<Waiter>();
  #lastInode = ROOT_INODE;

  constructor(files: readonly MemoryFile[], options: { readonly attributeTimeoutMs?: number } = {}) {
    const { attributeTimeoutMs = 60_000 } = options;
    this.timeouts = { nameMs: attributeTimeoutMs, fileMs: attributeTimeoutMs };
    this.#directories.set(ROOT_INODE, { inode: ROOT_INODE, children: new Map() });
    for (const file of files) this.#add(file);
  }

  get waitingOpens(): number {
    return this.#waiters.size;
  }

  /** Makes every waiting file ready, as a fetch that has ended would. */
  finish(): void {
    for (const file of this.#files.values()) if (file.behaviour === 'waits') file.behaviour = 'ready';
    for (const waiter of [...this.#waiters]) waiter.settle();
  }

  lookup(parent: InodeNumber, name: string): Attributes {
    const inode = this.#directory(parent).children.get(name);
    if (inode === undefined) throw new TmaxError('ENOENT', `no ${name}`, { level: 'debug' });
    return this.attributes(inode);
  }

  attributes(inode: InodeNumber): Attributes {
    const common = { inode, modifiedSeconds: MODIFIED_SECONDS, uid: 0, gid: 0, mode: 0o555 };
    const file = this.#files.get(inode);
    if (file !== undefined) {
      return { ...common, kind: 'file', sizeBytes: statSync(file.source).size, linkCount: file.linkCount };
    }
    const { children } = this.#directory(inode);
    const subdirectories = [...children.values()].filter((child) => this.#directories.has(child)).length;
    return { ...common, kind: 'directory', sizeBytes: children.size, linkCount: 2 + subdirectories };
  }

  list(inode: InodeNumber): readonly DirectoryEntry[] {
    return Array.from(this.#directory(inode).children, ([name, child]) => ({
      name,
      attributes: this.attributes(child),
    }));
  }

  open(inode: InodeNumber, { signal }: OpenOptions): OpenFile | Promise<OpenFile> {
    const file = this.#files.get(inode);
    if (file === undefined) throw new TmaxError('EISDIR', 'a directory', { level: 'debug' });
    if (file.behaviour === 'fails') throw new TmaxError('EBADMSG', 'not what it claims to be');
    if (file.behaviour === 'ready') return this.#opened(file);
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        file,
        settle: () => {
          this.#waiters.delete(waiter);
          resolve(this.#opened(file));
        },
      };
      this.#waiters.add(waiter);
      signal.addEventListener('abort', () => {
        this.#waiters.delete(waiter);
        this.events.push('aborted');
        reject(new TmaxError('EINTR', 'interrupted', { level: 'debug' }));
      });
    });
  }

  statistics(): FileSystemStatistics {
    return { blockSizeBytes: 4096, totalBlocks: 1000, freeBlocks: 400, files: this.#files.size };
  }

  extendedAttribute(inode: InodeNumber, name: string): Buffer {
    if (name !== STATE_ATTRIBUTE || !this.#files.has(inode)) throw new TmaxError('ENODATA', name, { level: 'debug' });
    return Buffer.from(STATE_VALUE);
  }

  extendedAttributeNames(inode: InodeNumber): readonly string[] {
    return this.#files.has(inode) ? [STATE_ATTRIBUTE, 'user.tmaxfs.sha256'] : [];
  }

  #opened(file: File): OpenFile {
    const descriptor = openSync(file.source, 'r');
    this.openDescriptors += 1;
    this.events.push('open');
    return {
      descriptor,
      close: () => {
        closeSync(descriptor);
        this.openDescriptors -= 1;
        this.events.push('close');
      },
    };
  }

  #directory(inode: InodeNumber): Directory {
    const directory = this.#directories.get(inode);
    if (directory !== undefined) return directory;
    const errno = this.#files.has(inode) ? 'ENOTDIR' : 'ESTALE';
    throw new TmaxError(errno, `no directory ${inode}`, { level: 'debug' });
  }

  #add({ path, source, behaviour = 'ready' }: MemoryFile): void {
    const names = path.split('/');
    const name = names.pop() ?? '';
    let parent = this.#directory(ROOT_INODE);
    for (const directoryName of names) parent = this.#subdirectory(parent, directoryName);
    const existing = [...this.#files.values()].find((file) => file.source === source && file.behaviour === behaviour);
    const file = existing ?? { inode: this.#nextInode(), source, behaviour, linkCount: 0 };
    file.linkCount += 1;
    this.#files.set(file.inode, file);
    parent.children.set(name, file.inode);
  }

  #subdirectory(parent: Directory, name: string): Directory {
    const existing = parent.children.get(name);
    if (existing !== undefined) return this.#directory(existing);
    const directory: Directory = { inode: this.#nextInode(), children: new Map() };
    this.#directories.set(directory.inode, directory);
    parent.children.set(name, directory.inode);
    return directory;
  }

  #nextInode(): InodeNumber {
    this.#lastInode += 1n;
    return this.#lastInode;
  }
}
