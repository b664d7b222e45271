/**
 * One connection with the kernel, from INIT to its end: takes requests, asks the file system, sends replies.
 *
 * Knows nothing of devices, threads or mounts: a request is a `Buffer`, a reply leaves through `send`. READ and FORGET
 * are dealt with by the reading threads (reader.ts) and never come here. Every request is answered before `handle`
 * returns, except an OPEN that has to wait. Forgotten inodes need no book-keeping: an inode number of this file system
 * stands for the same file for ever.
 */

import { constants as fsConstants } from 'node:fs';
import { constants as osConstants } from 'node:os';
import type { Logger } from 'pino';
import { TmaxError, toTmaxError } from '../../errors.js';
import type { Caller, FileSystem, InodeNumber, OpenFile, Timeouts } from '../../filesystem/contract.js';
import { ATTRIBUTE_NAMESPACE, Opcode, OpenFlag } from '../protocol/constants.js';
import { type DirectorySnapshot, listingReply } from '../protocol/directory.js';
import { MAX_READ_BYTES, type Negotiated, negotiate } from '../protocol/negotiation.js';
import {
  attributesReply,
  emptyReply,
  entryReply,
  errorReply,
  extendedAttributeReply,
  statisticsReply,
  structReply,
} from '../protocol/replies.js';
import { decodeBody, decodeName, decodeRequest, opcodeName, type Request } from '../protocol/requests.js';
import { AccessIn, GetxattrIn, InterruptIn, OpenIn, OpenOut, ReadIn, ReleaseIn } from '../protocol/structs.js';
import { type Backing, type Descriptors, OpenFiles } from './open-files.js';
import { WaitingOpens } from './waiting-opens.js';

const { EINTR, EINVAL, ENOSYS, ENOTCONN, EOPNOTSUPP, EROFS } = osConstants.errno;
const { O_RDONLY, O_TRUNC, O_CREAT } = fsConstants;
const O_ACCMODE = 3;
const W_OK = fsConstants.W_OK;

/** Requests that would change something, and so end in EROFS whatever they say. */
const WRITING: ReadonlySet<number> = new Set([
  Opcode.SETATTR,
  Opcode.SYMLINK,
  Opcode.MKNOD,
  Opcode.MKDIR,
  Opcode.UNLINK,
  Opcode.RMDIR,
  Opcode.RENAME,
  Opcode.RENAME2,
  Opcode.LINK,
  Opcode.WRITE,
  Opcode.SETXATTR,
  Opcode.REMOVEXATTR,
  Opcode.CREATE,
  Opcode.TMPFILE,
  Opcode.FALLOCATE,
  Opcode.COPY_FILE_RANGE,
  Opcode.COPY_FILE_RANGE_64,
]);

/** Messages that the kernel wants no reply to. */
const UNANSWERED: ReadonlySet<number> = new Set([Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.NOTIFY_REPLY]);

export interface SessionOptions {
  readonly fileSystem: FileSystem;
  /** Writes a reply to the kernel; false if the kernel no longer waits for it. */
  readonly send: (reply: Buffer) => boolean;
  readonly descriptors: Descriptors;
  readonly backing: Backing;
  /** Whether to ask the kernel for passthrough. */
  readonly passthrough: boolean;
  /** Whether the thread behind a request has a reason to stop waiting, as in signals.ts. */
  readonly wantsToStop: (tid: number) => boolean;
  /** Called once INIT has been answered, with what was agreed or why no agreement is possible. */
  readonly onInit: (outcome: Negotiated | TmaxError) => void;
  readonly log: Logger;
}

type Handler = (request: Request) => Buffer | undefined;

export class Session {
  readonly #options: SessionOptions;
  readonly #fileSystem: FileSystem;
  readonly #files: OpenFiles;
  readonly #waits: WaitingOpens;
  /** Open directories. The kernel often has the listing already: it is made when it is asked for. */
  readonly #directories = new Map<bigint, InodeNumber | DirectorySnapshot>();
  #lastDirectoryHandle = 0n;
  readonly #handlers: ReadonlyMap<number, Handler>;

  constructor(options: SessionOptions) {
    this.#options = options;
    this.#fileSystem = options.fileSystem;
    this.#files = new OpenFiles(options.descriptors, options.backing);
    this.#waits = new WaitingOpens(options.wantsToStop);
    this.#handlers = new Map<number, Handler>([
      [Opcode.INIT, (request) => this.#init(request)],
      [Opcode.LOOKUP, (request) => this.#lookup(request)],
      [Opcode.GETATTR, (request) => this.#attributes(request)],
      [Opcode.OPEN, (request) => this.#open(request)],
      [Opcode.RELEASE, (request) => this.#release(request)],
      [Opcode.OPENDIR, (request) => this.#openDirectory(request)],
      [Opcode.READDIR, (request) => this.#readDirectory(request, undefined)],
      [Opcode.READDIRPLUS, (request) => this.#readDirectory(request, { timeouts: this.#fileSystem.timeouts })],
      [Opcode.RELEASEDIR, (request) => this.#releaseDirectory(request)],
      [Opcode.STATFS, ({ unique }) => statisticsReply(unique, this.#fileSystem.statistics())],
      [Opcode.GETXATTR, (request) => this.#extendedAttribute(request)],
      [Opcode.LISTXATTR, (request) => this.#extendedAttributeNames(request)],
      [Opcode.ACCESS, (request) => this.#access(request)],
      [Opcode.READLINK, ({ unique }) => errorReply(unique, EINVAL)],
      [Opcode.INTERRUPT, (request) => this.#interrupt(request)],
      [Opcode.DESTROY, ({ unique }) => emptyReply(unique)],
      // FLUSH, LSEEK, FSYNC, IOCTL, … fall to ENOSYS on purpose: the kernel then asks no more and does by itself what
      // is right for a file that never changes (close at once; SEEK_HOLE is the end; nothing to sync; ENOTTY). STATX
      // too: all it could add is a birth time, which there is none of, and asking for that would bypass the kernel's own
      // copy of the attributes, so that an fstat of an open file failed once this process has gone.
    ]);
  }

  get waitingOpenCount(): number {
    return this.#waits.count;
  }

  get openHandleCount(): number {
    return this.#files.handleCount;
  }

  get openDirectoryCount(): number {
    return this.#directories.size;
  }

  get backingIdCount(): number {
    return this.#files.backingIdCount;
  }

  /** Who waits in an `open`. */
  get waitingCallers(): readonly Caller[] {
    return this.#waits.callers;
  }

  /** Handles one message of the kernel. Never throws: what can't be understood is answered with an errno or dropped. */
  handle(message: Buffer): void {
    const request = decodeRequest(message);
    if (request === undefined) {
      this.#options.log.warn(
        { lengthBytes: message.length },
        'dropped a message of the kernel: shorter than its header',
      );
      return;
    }
    const reply = this.#reply(request);
    if (reply !== undefined) this.#options.send(reply);
  }

  /** Ends every waiting open with ENOTCONN: the mount has been taken away. */
  abandonWaitingOpens(): void {
    this.#waits.abandonAll();
  }

  /** The connection is over: gives back all that was held for it. */
  close(): void {
    this.#waits.abandonAll();
    this.#files.releaseAll();
    this.#directories.clear();
  }

  #reply(request: Request): Buffer | undefined {
    const { opcode, unique } = request;
    if (UNANSWERED.has(opcode)) return undefined;
    if (WRITING.has(opcode)) return errorReply(unique, EROFS);
    try {
      const handler = this.#handlers.get(opcode);
      return handler === undefined ? errorReply(unique, ENOSYS) : handler(request);
    } catch (error) {
      return errorReply(unique, this.#errnoOf(error, opcode));
    }
  }

  /** A `TmaxError` has been logged where it arose; anything else is a bug, and nobody else would tell. */
  #errnoOf(thrown: unknown, opcode: number): number {
    const error = toTmaxError(thrown, 'kernel');
    if (error !== thrown) this.#options.log.error({ err: thrown, request: opcodeName(opcode) }, 'a request failed');
    return error.errnoNumber;
  }

  #init(request: Request): Buffer | undefined {
    try {
      const { reply, negotiated } = negotiate(request, { passthrough: this.#options.passthrough });
      this.#options.send(reply);
      if (negotiated !== undefined) this.#options.onInit(negotiated);
      return undefined;
    } catch (error) {
      this.#options.onInit(toTmaxError(error, 'kernel'));
      throw error;
    }
  }

  /** "." comes from those who hold only a file handle (NFS servers, open_by_handle_at), as EXPORT_SUPPORT promises. */
  #lookup(request: Request): Buffer {
    const name = decodeName(request);
    const attributes =
      name === '.' ? this.#fileSystem.attributes(request.nodeId) : this.#fileSystem.lookup(request.nodeId, name);
    return entryReply(request.unique, attributes, this.#fileSystem.timeouts);
  }

  #attributes({ unique, nodeId }: Request): Buffer {
    return attributesReply(unique, this.#fileSystem.attributes(nodeId), this.#fileSystem.timeouts);
  }

  #open(request: Request): Buffer | undefined {
    const { unique, nodeId, caller } = request;
    const { flags } = decodeBody(request, OpenIn);
    if ((flags & O_ACCMODE) !== O_RDONLY || (flags & (O_TRUNC | O_CREAT)) !== 0) return errorReply(unique, EROFS);

    const controller = new AbortController();
    const opened = this.#fileSystem.open(nodeId, { caller, signal: controller.signal });
    if (!(opened instanceof Promise)) {
      this.#answerOpen(request, opened);
      return undefined;
    }
    this.#waits.begin(unique, caller, controller, (reason) => {
      this.#options.send(errorReply(unique, reason === 'interrupted' ? EINTR : ENOTCONN));
    });
    opened.then(
      (file) => {
        if (this.#waits.end(unique)) this.#answerOpen(request, file);
        else file.close();
      },
      (error: unknown) => {
        if (this.#waits.end(unique)) this.#options.send(errorReply(unique, this.#errnoOf(error, Opcode.OPEN)));
      },
    );
    return undefined;
  }

  /** Hands an open file to the kernel, or gives it back where the kernel no longer wants it. */
  #answerOpen({ unique, nodeId }: Request, file: OpenFile): void {
    try {
      const { handle, backingId, isCacheValid } = this.#files.add(nodeId, file);
      const relayed = isCacheValid ? OpenFlag.KEEP_CACHE : 0;
      const reply = structReply(unique, OpenOut, {
        handle: BigInt(handle),
        openFlags: backingId === undefined ? relayed : OpenFlag.PASSTHROUGH,
        backingId: backingId ?? 0,
      });
      if (!this.#options.send(reply)) this.#files.release(handle);
    } catch (error) {
      file.close();
      this.#options.send(errorReply(unique, this.#errnoOf(error, Opcode.OPEN)));
    }
  }

  #release(request: Request): Buffer {
    this.#files.release(Number(decodeBody(request, ReleaseIn).handle));
    return emptyReply(request.unique);
  }

  /** The kernel may keep the listing until the directory's modification time changes. */
  #openDirectory({ unique, nodeId }: Request): Buffer {
    this.#lastDirectoryHandle += 1n;
    this.#directories.set(this.#lastDirectoryHandle, nodeId);
    return structReply(unique, OpenOut, {
      handle: this.#lastDirectoryHandle,
      openFlags: OpenFlag.KEEP_CACHE | OpenFlag.CACHE_DIR,
    });
  }

  #readDirectory(request: Request, attributesFor: { readonly timeouts: Timeouts } | undefined): Buffer {
    const { handle, offset, size } = decodeBody(request, ReadIn);
    const sizeBytes = Math.min(size, MAX_READ_BYTES);
    return listingReply(request.unique, this.#listing(handle), { offset, sizeBytes, attributesFor });
  }

  #listing(handle: bigint): DirectorySnapshot {
    const directory = this.#directories.get(handle);
    if (directory === undefined)
      throw new TmaxError('EBADF', `no directory is open as ${handle}`, { source: 'kernel' });
    if (typeof directory !== 'bigint') return directory;
    const snapshot = { inode: directory, entries: this.#fileSystem.list(directory) };
    this.#directories.set(handle, snapshot);
    return snapshot;
  }

  #releaseDirectory(request: Request): Buffer {
    this.#directories.delete(decodeBody(request, ReleaseIn).handle);
    return emptyReply(request.unique);
  }

  #extendedAttribute(request: Request): Buffer {
    const { size } = decodeBody(request, GetxattrIn);
    const name = decodeName(request, GetxattrIn.size);
    if (!name.startsWith(ATTRIBUTE_NAMESPACE)) return errorReply(request.unique, EOPNOTSUPP);
    return this.#sized(request.unique, this.#fileSystem.extendedAttribute(request.nodeId, name), size);
  }

  #extendedAttributeNames(request: Request): Buffer {
    const { size } = decodeBody(request, GetxattrIn);
    const names = this.#fileSystem.extendedAttributeNames(request.nodeId);
    return this.#sized(request.unique, Buffer.from(names.map((name) => `${name}\0`).join('')), size);
  }

  #sized(unique: bigint, value: Buffer, sizeBytes: number): Buffer {
    return extendedAttributeReply(unique, value, sizeBytes) ?? errorReply(unique, osConstants.errno.ERANGE);
  }

  /** Only sent by kernels that were not told `default_permissions`; the mode bits have been checked where they were. */
  #access(request: Request): Buffer {
    const { mask } = decodeBody(request, AccessIn);
    return errorReply(request.unique, (mask & W_OK) === 0 ? 0 : EROFS);
  }

  #interrupt(request: Request): undefined {
    this.#waits.interrupt(decodeBody(request, InterruptIn).unique);
  }
}
