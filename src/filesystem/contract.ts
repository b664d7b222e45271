/**
 * What a driver (the kernel protocol, or fuse-native) asks of a file system, and all that it knows of it.
 *
 * Inode-based and read-only. The calls that "look" (lookup, attributes, listing, statistics, extended attributes) are
 * synchronous on purpose: the type itself rules out that looking waits for a network or a disk. Only `open` may wait.
 * A failed call throws a `TmaxError`; the driver answers with its errno and logs nothing: who throws has logged.
 */

/** An inode number below 2^63; `ROOT_INODE` is the root directory. Stable over restarts and machines. */
export type InodeNumber = bigint;

export const ROOT_INODE: InodeNumber = 1n;

export interface Attributes {
  readonly inode: InodeNumber;
  readonly kind: 'directory' | 'file';
  /** Permission bits alone, as 0o555. */
  readonly mode: number;
  readonly sizeBytes: number;
  /** Modification, change and access time alike, in whole seconds since the epoch. */
  readonly modifiedSeconds: number;
  /** Number of names (files) or 2 + subdirectories (directories). */
  readonly linkCount: number;
  readonly uid: number;
  readonly gid: number;
}

export interface DirectoryEntry {
  readonly name: string;
  readonly attributes: Attributes;
}

/** The process behind a request. `pid` is a thread id, 0 where the caller lives in a pid namespace that can't be seen. */
export interface Caller {
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
}

export interface OpenOptions {
  readonly caller: Caller;
  /** Aborted when the caller is gone or was interrupted: the wait ends with EINTR, what it waited for goes on. */
  readonly signal: AbortSignal;
}

/** An open file: its whole content, proven, behind a descriptor that stays valid until `close`. */
export interface OpenFile {
  /** Read-only descriptor of the local file; owned by the file system, never closed by the driver. */
  readonly descriptor: number;
  /** Called once, after the last read has been answered. */
  close(): void;
}

export interface FileSystemStatistics {
  readonly blockSizeBytes: number;
  readonly totalBlocks: number;
  readonly freeBlocks: number;
  readonly files: number;
}

/** How long the kernel may keep what it was told without asking again. */
export interface Timeouts {
  /** Names, and the attributes of folders: for as long as they may be out of date after the tree has changed. */
  readonly nameMs: number;
  /** Attributes of files, whose inodes stand for one content for ever: long, so that fstat(2) of an open file outlives the daemon. */
  readonly fileMs: number;
}

export interface FileSystem {
  readonly timeouts: Timeouts;
  /** Errors: ENOENT, ENOTDIR, ESTALE (parent gone). */
  lookup(parent: InodeNumber, name: string): Attributes;
  /** Errors: ESTALE. */
  attributes(inode: InodeNumber): Attributes;
  /** Entries without "." and "..", in a fixed order. A driver keeps the array for as long as a directory is open. Errors: ENOTDIR, ESTALE. */
  list(inode: InodeNumber): readonly DirectoryEntry[];
  /** At once for what is on disk and proven, else after the fetch. Errors: see docs/SEMANTICS.md. */
  open(inode: InodeNumber, options: OpenOptions): OpenFile | Promise<OpenFile>;
  statistics(): FileSystemStatistics;
  /** Errors: ENODATA. */
  extendedAttribute(inode: InodeNumber, name: string): Buffer;
  extendedAttributeNames(inode: InodeNumber): readonly string[];
}
