/** Numbers of the FUSE protocol, named as in the kernel's include/uapi/linux/fuse.h (protocol 7.45, kernel 6.18). */

/** The protocol's major version; another one can't be spoken. */
export const PROTOCOL_MAJOR = 7;
/** The newest minor version that this side knows: 7.40 brought passthrough. What came later is optional. */
export const PROTOCOL_MINOR = 40;
/** The oldest one: 7.23 (kernel 3.15) made the INIT reply as long as it is today. RHEL 8 speaks 7.27 and newer. */
export const OLDEST_PROTOCOL_MINOR = 23;

/** `enum fuse_opcode`. */
export const Opcode = {
  LOOKUP: 1,
  FORGET: 2,
  GETATTR: 3,
  SETATTR: 4,
  READLINK: 5,
  SYMLINK: 6,
  MKNOD: 8,
  MKDIR: 9,
  UNLINK: 10,
  RMDIR: 11,
  RENAME: 12,
  LINK: 13,
  OPEN: 14,
  READ: 15,
  WRITE: 16,
  STATFS: 17,
  RELEASE: 18,
  FSYNC: 20,
  SETXATTR: 21,
  GETXATTR: 22,
  LISTXATTR: 23,
  REMOVEXATTR: 24,
  FLUSH: 25,
  INIT: 26,
  OPENDIR: 27,
  READDIR: 28,
  RELEASEDIR: 29,
  FSYNCDIR: 30,
  GETLK: 31,
  SETLK: 32,
  SETLKW: 33,
  ACCESS: 34,
  CREATE: 35,
  INTERRUPT: 36,
  BMAP: 37,
  DESTROY: 38,
  IOCTL: 39,
  POLL: 40,
  NOTIFY_REPLY: 41,
  BATCH_FORGET: 42,
  FALLOCATE: 43,
  READDIRPLUS: 44,
  RENAME2: 45,
  LSEEK: 46,
  COPY_FILE_RANGE: 47,
  SETUPMAPPING: 48,
  REMOVEMAPPING: 49,
  SYNCFS: 50,
  TMPFILE: 51,
  STATX: 52,
  COPY_FILE_RANGE_64: 53,
} as const;

/** Flags of INIT. The kernel offers, this side asks for some of what is offered; those from bit 32 travel in `flags2`. */
export const InitFlag = {
  ASYNC_READ: 1n << 0n,
  EXPORT_SUPPORT: 1n << 4n,
  DO_READDIRPLUS: 1n << 13n,
  READDIRPLUS_AUTO: 1n << 14n,
  ASYNC_DIO: 1n << 15n,
  PARALLEL_DIROPS: 1n << 18n,
  MAX_PAGES: 1n << 22n,
  INIT_EXT: 1n << 30n,
  PASSTHROUGH: 1n << 37n,
} as const;

/** Flags of the replies to OPEN and OPENDIR. */
export const OpenFlag = {
  KEEP_CACHE: 1 << 1,
  CACHE_DIR: 1 << 3,
  PASSTHROUGH: 1 << 7,
} as const;

/** ioctl(2) requests on /dev/fuse: _IOW(229, 1, struct fuse_backing_map) and _IOW(229, 2, uint32_t). */
export const DeviceIoctl = {
  BACKING_OPEN: 0x4010e501,
  BACKING_CLOSE: 0x4004e502,
} as const;

/** What d_ino says of "..", whose inode a file system behind this interface is not asked for (FUSE_UNKNOWN_INO). */
export const UNKNOWN_INODE = 0xffffffffn;

/**
 * The one namespace of extended attributes that is served. In the others ENOTSUP, not ENODATA, is answered: `ls -l` asks
 * for an access control list and a security label of each file, but of only one where they are not supported.
 */
export const ATTRIBUTE_NAMESPACE = 'user.';
