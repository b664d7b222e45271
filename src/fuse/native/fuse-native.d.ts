/** The part of fuse-native 2.2 (a package without types) that the driver uses, its overridable insides included. */
declare module 'fuse-native' {
  /** Answers a request: 0 or a length, or a negative errno; then the values of the reply. */
  export type Signal = (result: number, ...values: unknown[]) => void;

  export interface Stat {
    readonly mode: number;
    readonly uid: number;
    readonly gid: number;
    readonly size: number;
    readonly nlink: number;
    /** Cut to 32 bits. */
    readonly ino: number;
    readonly blksize: number;
    readonly blocks: number;
    /** Milliseconds. */
    readonly atime: number;
    readonly mtime: number;
    readonly ctime: number;
  }

  /** All cut to 32 bits. */
  export interface Statfs {
    readonly bsize: number;
    readonly frsize: number;
    readonly blocks: number;
    readonly bfree: number;
    readonly bavail: number;
    readonly files: number;
    readonly namemax: number;
  }

  type Callback<Values extends unknown[]> = (result: number, ...values: Values) => void;

  export interface Operations {
    statfs(path: string, done: Callback<[statfs?: Statfs]>): void;
    getattr(path: string, done: Callback<[stat?: Stat]>): void;
    readdir(path: string, done: Callback<[names?: readonly string[], stats?: readonly Stat[]]>): void;
    open(path: string, flags: number, done: Callback<[handle?: number]>): void;
    read(path: string, handle: number, buffer: Buffer, length: number, offset: number, done: Callback<[]>): void;
    release(path: string, handle: number, done: Callback<[]>): void;
    /** Only their being there counts: the class below answers them by its `_op_` methods. */
    getxattr(): void;
    listxattr(): void;
  }

  export default class Fuse {
    constructor(mountpoint: string, operations: Operations, options: { readonly timeout: false });
    static unmount: (mountpoint: string, done: (error: Error | null) => void) => void;
    open(done: (error: Error | null) => void): void;
    close(done: (error: Error | null) => void): void;
    /** The whole "-o…" argument for libfuse. */
    _fuseOptions(): string;
    _op_getxattr(signal: Signal, path: string, name: string, value: Buffer): void;
    _op_listxattr(signal: Signal, path: string, list: Buffer): void;
  }
}
