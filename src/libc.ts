/**
 * The few calls of the C library that Node does not offer, each typed and throwing a `SystemCallError`.
 *
 * `koffi` is loaded by the first call, not by importing this file, so that a command that needs none of it starts fast.
 * The symbols are those already linked into the running process: glibc and musl alike, no library name to guess.
 */

import { closeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants, getPriority } from 'node:os';
import { loadNative } from './thread-end.js';

/** Flags of mount(2), from <sys/mount.h>. */
export const MS_RDONLY = 1;
export const MS_NOSUID = 2;
export const MS_NODEV = 4;
export const MS_NOEXEC = 8;
/** Flags of umount2(2), from <sys/mount.h>. */
export const MNT_DETACH = 2;
export const UMOUNT_NOFOLLOW = 8;

const F_DUPFD_CLOEXEC = 1030;
const POSIX_FADV_DONTNEED = 4;
/** Of utimensat(2), from <fcntl.h> and <bits/stat.h>. */
const AT_FDCWD = -100;
const AT_SYMLINK_NOFOLLOW = 0x100;
const UTIME_OMIT = 0x3ffffffen;
/** Request of ioctl(2), from <linux/fs.h>: _IOW(0x94, 9, int). */
const FICLONE = 0x40049409;
/** Request of ioctl(2), from <linux/fsverity.h>: _IOW('f', 133, struct fsverity_enable_arg). */
const FS_IOC_ENABLE_VERITY = 0x40806685;
/** sizeof(struct fsverity_enable_arg): four 32-bit numbers (version, hash algorithm, block size, size of the salt), then no salt and no signature. */
const VERITY_ARGUMENT_BYTES = 128;
const VERITY_VERSION = 1;
const FS_VERITY_HASH_ALG_SHA256 = 1;
/** What every kernel with 4 KiB pages takes. */
const VERITY_BLOCK_BYTES = 4096;
const AF_UNIX = 1;
const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_CLOEXEC = 0o2000000;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
/** sizeof(struct sockaddr_un.sun_path), its closing NUL included. */
const MAX_SOCKET_PATH_BYTES = 108;
const MSG_CMSG_CLOEXEC = 0x40000000;
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;
/** sizeof(struct cmsghdr): the length as size_t, then level and type as int. */
const CMSG_HEADER_BYTES = 16;
/** Numbers of sched_setattr(2), from <asm/unistd.h>. */
const SCHED_SETATTR: Partial<Record<NodeJS.Architecture, number>> = { x64: 314, arm64: 274 };
/** SCHED_ATTR_SIZE_VER0 in <linux/sched/types.h>. */
const SCHED_ATTRIBUTES_BYTES = 48;
const LOCK_SH = 1;
const LOCK_EX = 2;
const LOCK_NB = 4;
const LOCK_UN = 8;
/** The largest value of an extended attribute (XATTR_SIZE_MAX in <linux/limits.h>). */
const MAX_XATTR_BYTES = 65_536;

/** A failed system call, with the same fields as the errors of `node:fs`: `code` is the name of the errno. */
export class SystemCallError extends Error {
  override readonly name = 'SystemCallError';
  readonly code: string;

  constructor(
    readonly syscall: string,
    readonly errno: number,
    subject: string,
  ) {
    const code = errnoNameOf(errno);
    super(`${code}: ${syscall} ${subject}`.trimEnd());
    this.code = code;
  }
}

/** Node knows no name for some numbers, EBADMSG among them. */
export function errnoNameOf(errno: number): string {
  const found = Object.entries(constants.errno).find(([, number]) => number === errno);
  return found?.[0] ?? `errno ${errno}`;
}

type Async<Arguments extends unknown[]> = {
  async: (...values: [...Arguments, (error: unknown, result: number) => void]) => void;
};
type Call<Arguments extends unknown[]> = ((...values: Arguments) => number) & Async<Arguments>;

interface MessageHeader {
  msg_name: null;
  msg_namelen: number;
  msg_iov: readonly { iov_base: Buffer; iov_len: number }[];
  msg_iovlen: number;
  msg_control: Buffer;
  msg_controllen: number;
  msg_flags: number;
}

interface Bindings {
  errno(): number;
  mount: Call<[string, string, string, number, string]>;
  umount2: Call<[string, number]>;
  ioctl: Call<[number, number, Buffer]>;
  /** The same call where its argument is a number. */
  ioctlNumber: Call<[number, number, number]>;
  fcntl: Call<[number, number, number]>;
  flock: Call<[number, number]>;
  utimensat: Call<[number, string, BigInt64Array, number]>;
  posix_fadvise: Call<[number, number, number, number]>;
  socketpair: Call<[number, number, number, Buffer]>;
  socket: Call<[number, number, number]>;
  sendto: Call<[number, Buffer, number, number, Buffer, number]>;
  recvmsg: Call<[number, MessageHeader, number]>;
  getxattr: Call<[string, string, Buffer, number]>;
  lgetxattr: Call<[string, string, Buffer, number]>;
  setsid: () => number;
  syscall: Call<[number, number, Buffer, number]>;
  _exit: (code: number) => void;
}

let bindings: Bindings | undefined;

function libc(): Bindings {
  bindings ??= loadNative(bind);
  return bindings;
}

function bind(): Bindings {
  const koffi: typeof import('koffi') = createRequire(import.meta.url)('koffi');
  const library = koffi.load(null);
  const iovec = koffi.struct({ iov_base: 'void *', iov_len: 'size_t' });
  const messageHeader = koffi.struct({
    msg_name: 'void *',
    msg_namelen: 'uint32_t',
    msg_iov: koffi.pointer(iovec),
    msg_iovlen: 'size_t',
    msg_control: 'void *',
    msg_controllen: 'size_t',
    msg_flags: 'int',
  });
  // ioctl and fcntl are variadic in C; on the Linux ABIs of Node an integer or pointer travels the same way.
  return {
    errno: () => koffi.errno(),
    mount: library.func('int mount(const char *, const char *, const char *, unsigned long, const char *)'),
    umount2: library.func('int umount2(const char *, int)'),
    ioctl: library.func('int ioctl(int, unsigned long, void *)'),
    ioctlNumber: library.func('ioctl', 'int', ['int', 'unsigned long', 'long']),
    fcntl: library.func('int fcntl(int, int, int)'),
    flock: library.func('int flock(int, int)'),
    utimensat: library.func('int utimensat(int, const char *, void *, int)'),
    posix_fadvise: library.func('int posix_fadvise(int, int64_t, int64_t, int)'),
    socketpair: library.func('int socketpair(int, int, int, void *)'),
    socket: library.func('int socket(int, int, int)'),
    sendto: library.func('int64_t sendto(int, void *, size_t, int, void *, unsigned int)'),
    recvmsg: library.func('recvmsg', 'int64_t', ['int', koffi.inout(koffi.pointer(messageHeader)), 'int']),
    getxattr: library.func('int64_t getxattr(const char *, const char *, void *, size_t)'),
    lgetxattr: library.func('int64_t lgetxattr(const char *, const char *, void *, size_t)'),
    setsid: library.func('int setsid()'),
    syscall: library.func('long syscall(long, long, void *, long)'),
    _exit: library.func('void _exit(int)'),
  };
}

/** Loads the bindings now. Throws what `koffi` throws where it has no build for this machine. */
export function loadLibc(): void {
  libc();
}

function checked(result: number, syscall: string, subject: string): number {
  if (result === -1) throw new SystemCallError(syscall, libc().errno(), subject);
  return result;
}

/** mount(2). */
export function mount(source: string, target: string, type: string, flags: number, data: string): void {
  checked(libc().mount(source, target, type, flags, data), 'mount', target);
}

/** umount2(2) on another thread, since it may wait for the file system that this very thread serves. */
export async function unmount(target: string, flags: number): Promise<void> {
  await onAnotherThread(libc().umount2, 'umount2', target, target, flags);
}

/** ioctl(2) with a pointer to `argument`; returns what the call returns. */
export function ioctl(descriptor: number, request: number, argument: Buffer): number {
  return checked(libc().ioctl(descriptor, request, argument), 'ioctl', `${descriptor} 0x${request.toString(16)}`);
}

/**
 * Gives a file the content of another without copying it, ioctl_ficlone(2): they share it on disk until one of them changes.
 * False where that can't be done: not one file system, or one without it.
 */
export function cloneFile(target: number, source: number): boolean {
  return libc().ioctlNumber(target, FICLONE, source) === 0;
}

/**
 * Seals a file that nobody has open for writing: from now on nobody can write to it, and a part of it that the disk gives back
 * changed is not read, but EIO. Reads all of it, on another thread. `descriptor`: opened for reading.
 * Source: https://docs.kernel.org/filesystems/fsverity.html
 * Errors: EOPNOTSUPP, ENOTTY, EINVAL the file system can't; EEXIST it is sealed already; ETXTBSY somebody may write to it; ENOSPC; EIO.
 */
export async function enableVerity(descriptor: number): Promise<void> {
  const argument = Buffer.alloc(VERITY_ARGUMENT_BYTES);
  argument.writeUInt32LE(VERITY_VERSION, 0);
  argument.writeUInt32LE(FS_VERITY_HASH_ALG_SHA256, 4);
  argument.writeUInt32LE(VERITY_BLOCK_BYTES, 8);
  const subject = `${descriptor} FS_IOC_ENABLE_VERITY`;
  await onAnotherThread(libc().ioctl, 'ioctl', subject, descriptor, FS_IOC_ENABLE_VERITY, argument);
}

/** A duplicate of `descriptor`, closed on exec, with the lowest free number that is not below `atLeast`. */
export function duplicateDescriptor(descriptor: number, atLeast: number): number {
  return checked(libc().fcntl(descriptor, F_DUPFD_CLOEXEC, atLeast), 'fcntl F_DUPFD_CLOEXEC', String(descriptor));
}

/** setsid(2): apart from the terminal and the process group that this process was started in. EPERM it leads a group already. */
export function startSession(): void {
  checked(libc().setsid(), 'setsid', '');
}

/**
 * How long a thread runs on one turn where others want its core, from 100 us to 100 ms; one with a shorter turn does not
 * wait for the end of a longer one when it wakes. `tid`: of this process; 0 is the calling thread. Advice only: Linux before 6.12 knows
 * one length for all, and where it is refused nothing changes. sched_setattr(2), for which the C library of most machines has no function.
 */
export function setTimeSlice(tid: number, sliceUs: number): void {
  const systemCall = SCHED_SETATTR[process.arch];
  if (systemCall === undefined) return;
  const attributes = Buffer.alloc(SCHED_ATTRIBUTES_BYTES);
  attributes.writeUInt32LE(SCHED_ATTRIBUTES_BYTES, 0);
  // The policy, at 4, and the flags, at 8, are those of any thread: 0.
  attributes.writeInt32LE(getPriority(tid), 16);
  attributes.writeBigUInt64LE(BigInt(sliceUs) * 1000n, 24);
  libc().syscall(systemCall, tid, attributes, 0);
}

/** flock(2) modes; those ending in "NonBlocking" do not wait for another holder. */
export type FlockMode = 'shared' | 'exclusive' | 'sharedNonBlocking' | 'exclusiveNonBlocking' | 'unlock';

const FLOCK_OPERATIONS: Readonly<Record<FlockMode, number>> = {
  shared: LOCK_SH,
  exclusive: LOCK_EX,
  sharedNonBlocking: LOCK_SH | LOCK_NB,
  exclusiveNonBlocking: LOCK_EX | LOCK_NB,
  unlock: LOCK_UN,
};

/** flock(2); false if a non-blocking mode found it held by another. The others block this thread until it is free. */
export function flock(descriptor: number, mode: FlockMode): boolean {
  if (libc().flock(descriptor, FLOCK_OPERATIONS[mode]) === 0) return true;
  const failure = new SystemCallError('flock', libc().errno(), String(descriptor));
  if (failure.code === 'EAGAIN' || failure.code === 'EWOULDBLOCK') return false;
  throw failure;
}

/**
 * Lets go of what the page cache holds of a part of a file, as far as nobody has it mapped: the next read asks the disk.
 * Advice only, so a kernel or file system that does not take it is no error.
 */
export function forgetCachedPages(descriptor: number, offsetBytes: number, lengthBytes: number): void {
  libc().posix_fadvise(descriptor, offsetBytes, lengthBytes, POSIX_FADV_DONTNEED);
}

/** Sets the access time of a file, milliseconds since the epoch, and nothing else of it. */
export async function setAccessTime(path: string, atMs: number): Promise<void> {
  const seconds = Math.floor(atMs / 1000);
  const nanoseconds = Math.floor((atMs - seconds * 1000) * 1e6);
  // Two struct timespec: seconds and nanoseconds of the access, then of the modification.
  const times = new BigInt64Array([BigInt(seconds), BigInt(nanoseconds), 0n, UTIME_OMIT]);
  await onAnotherThread(libc().utimensat, 'utimensat', path, AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW);
}

/** Two connected stream sockets, closed on exec. */
export function socketPair(): [number, number] {
  const ends = Buffer.alloc(8);
  checked(libc().socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 'socketpair', '');
  return [ends.readInt32LE(0), ends.readInt32LE(4)];
}

/**
 * The descriptor that waits in `socket` as an SCM_RIGHTS message (unix(7)), or undefined if the peer has sent none.
 * Does not block: EAGAIN where nothing has come and the peer is still there.
 */
export function receiveDescriptor(socket: number): number | undefined {
  const data = Buffer.alloc(8);
  const control = Buffer.alloc(64);
  const header: MessageHeader = {
    msg_name: null,
    msg_namelen: 0,
    msg_iov: [{ iov_base: data, iov_len: data.length }],
    msg_iovlen: 1,
    msg_control: control,
    msg_controllen: control.length,
    msg_flags: 0,
  };
  checked(Number(libc().recvmsg(socket, header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)), 'recvmsg', String(socket));
  const length = Number(control.readBigUInt64LE(0));
  const isRights = control.readInt32LE(8) === SOL_SOCKET && control.readInt32LE(12) === SCM_RIGHTS;
  return isRights && length >= CMSG_HEADER_BYTES + 4 ? control.readInt32LE(CMSG_HEADER_BYTES) : undefined;
}

/**
 * Sends one datagram to the Unix socket at `path`; "@" at its beginning stands for the abstract namespace. Does not wait
 * for a receiver whose queue is full.
 */
export function sendDatagram(path: string, message: Buffer): void {
  const name = Buffer.from(path.startsWith('@') ? `\0${path.slice(1)}` : path, 'utf8');
  if (name.length >= MAX_SOCKET_PATH_BYTES) throw new SystemCallError('sendto', constants.errno.ENAMETOOLONG, path);
  const address = Buffer.concat([Buffer.alloc(2), name]);
  address.writeUInt16LE(AF_UNIX, 0);
  const socket = checked(libc().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), 'socket', path);
  try {
    const flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    checked(Number(libc().sendto(socket, message, message.length, flags, address, address.length)), 'sendto', path);
  } finally {
    closeSync(socket);
  }
}

export interface ExtendedAttributeOptions {
  /** Whether a symbolic link stands for what it points to; default true. */
  readonly followLinks?: boolean;
}

/** The value of an extended attribute. Blocks until the file system has answered: not for a mount that this process serves. */
export function getExtendedAttribute(path: string, name: string, options: ExtendedAttributeOptions = {}): Buffer {
  const value = Buffer.alloc(MAX_XATTR_BYTES);
  const call = options.followLinks === false ? libc().lgetxattr : libc().getxattr;
  const length = checked(Number(call(path, name, value, value.length)), 'getxattr', `${path} ${name}`);
  return Buffer.from(value.subarray(0, length));
}

/** As `getExtendedAttribute`, on another thread. */
export async function readExtendedAttribute(
  path: string,
  name: string,
  options: ExtendedAttributeOptions = {},
): Promise<Buffer> {
  const value = Buffer.alloc(MAX_XATTR_BYTES);
  const call = options.followLinks === false ? libc().lgetxattr : libc().getxattr;
  const length = await onAnotherThread(call, 'getxattr', `${path} ${name}`, path, name, value, value.length);
  return Buffer.from(value.subarray(0, length));
}

/** Parameter of mallopt(3): from which size on an allocation is a mapping of its own, given back whole when it is freed. */
const M_MMAP_THRESHOLD = -3;

/** Has allocations of this size and more given back to the system when they are freed. Without effect where libc can't. */
export function returnAllocationsFrom(sizeBytes: number): void {
  try {
    const koffi: typeof import('koffi') = createRequire(import.meta.url)('koffi');
    koffi.load(null).func('int mallopt(int, int)')(M_MMAP_THRESHOLD, sizeBytes);
  } catch {
    // musl has no such call, and gives back by itself.
  }
}

/**
 * Ends the process at once: no exit handlers, no waiting for threads that block in the kernel. Without koffi, by SIGKILL,
 * which does the same.
 */
export function exitNow(code: number): void {
  try {
    libc()._exit(code);
  } catch {
    process.kill(process.pid, 'SIGKILL');
  }
}

/** Calls on a thread of koffi's pool. The errno is the call's own only inside the very callback. */
function onAnotherThread<Arguments extends unknown[]>(
  call: Async<Arguments>,
  syscall: string,
  subject: string,
  ...values: Arguments
): Promise<number> {
  return new Promise((resolve, reject) => {
    call.async(...values, (error, result) => {
      const outcome = Number(result);
      if (error !== null && error !== undefined) reject(error);
      else if (outcome === -1) reject(new SystemCallError(syscall, libc().errno(), subject));
      else resolve(outcome);
    });
  });
}
