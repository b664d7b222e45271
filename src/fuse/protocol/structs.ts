/**
 * The structs of the kernel's include/uapi/linux/fuse.h that this driver reads or writes, each under its name there.
 * `*In` follows the header of a request, `*Out` that of a reply.
 */

import { i32, reserved, struct, u16, u32, u64 } from './layout.js';

export const InHeader = struct('fuse_in_header', {
  length: u32,
  opcode: u32,
  unique: u64,
  nodeId: u64,
  uid: u32,
  gid: u32,
  pid: u32,
  extensionLength: u16,
  padding: reserved(2),
});

export const OutHeader = struct('fuse_out_header', { length: u32, error: i32, unique: u64 });

/** The start of `fuse_init_in`, all that kernels before 5.17 send. */
export const InitIn = struct('fuse_init_in', { major: u32, minor: u32, maxReadahead: u32, flags: u32 });

/** The rest of `fuse_init_in`, there when FUSE_INIT_EXT is offered. */
export const InitInExtension = struct('fuse_init_in (extension)', { flags2: u32, unused: reserved(44) });

export const InitOut = struct('fuse_init_out', {
  major: u32,
  minor: u32,
  maxReadahead: u32,
  flags: u32,
  maxBackground: u16,
  congestionThreshold: u16,
  maxWrite: u32,
  timeGranularityNs: u32,
  maxPages: u16,
  mapAlignment: u16,
  flags2: u32,
  maxStackDepth: u32,
  requestTimeoutSeconds: u16,
  unused: reserved(22),
});

export const Attr = struct('fuse_attr', {
  inode: u64,
  size: u64,
  blocks: u64,
  accessSeconds: u64,
  modifySeconds: u64,
  changeSeconds: u64,
  accessNs: u32,
  modifyNs: u32,
  changeNs: u32,
  mode: u32,
  linkCount: u32,
  uid: u32,
  gid: u32,
  device: u32,
  blockSize: u32,
  flags: u32,
});

export const EntryOut = struct('fuse_entry_out', {
  nodeId: u64,
  generation: u64,
  entryValidSeconds: u64,
  attrValidSeconds: u64,
  entryValidNs: u32,
  attrValidNs: u32,
  attr: Attr,
});

export const AttrOut = struct('fuse_attr_out', {
  attrValidSeconds: u64,
  attrValidNs: u32,
  dummy: reserved(4),
  attr: Attr,
});

export const OpenIn = struct('fuse_open_in', { flags: u32, openFlags: u32 });

export const OpenOut = struct('fuse_open_out', { handle: u64, openFlags: u32, backingId: i32 });

/** Also of RELEASEDIR. */
export const ReleaseIn = struct('fuse_release_in', { handle: u64, flags: u32, releaseFlags: u32, lockOwner: u64 });

/** Also of READDIR and READDIRPLUS. */
export const ReadIn = struct('fuse_read_in', {
  handle: u64,
  offset: u64,
  size: u32,
  readFlags: u32,
  lockOwner: u64,
  flags: u32,
  padding: reserved(4),
});

export const Dirent = struct('fuse_dirent', { inode: u64, nextOffset: u64, nameLength: u32, type: u32 });

export const StatfsOut = struct('fuse_kstatfs', {
  blocks: u64,
  freeBlocks: u64,
  availableBlocks: u64,
  files: u64,
  freeFiles: u64,
  blockSize: u32,
  nameLength: u32,
  fragmentSize: u32,
  padding: reserved(4),
  spare: reserved(24),
});

/** Also of LISTXATTR. */
export const GetxattrIn = struct('fuse_getxattr_in', { size: u32, padding: reserved(4) });

export const GetxattrOut = struct('fuse_getxattr_out', { size: u32, padding: reserved(4) });

export const AccessIn = struct('fuse_access_in', { mask: u32, padding: reserved(4) });

export const InterruptIn = struct('fuse_interrupt_in', { unique: u64 });

/** The argument of FUSE_DEV_IOC_BACKING_OPEN. */
export const BackingMap = struct('fuse_backing_map', { descriptor: i32, flags: u32, padding: reserved(8) });
