/**
 * Answers the path-based calls of fuse-native from an inode-based file system: a path is looked up name by name.
 *
 * Every method returns what the call is to be answered with and throws what the file system throws.
 */

import type { Stat, Statfs } from 'fuse-native';
import { TmaxError } from '../../errors.js';
import { type Attributes, type FileSystem, ROOT_INODE } from '../../filesystem/contract.js';
import { ATTRIBUTE_NAMESPACE } from '../protocol/constants.js';
import { fileType } from '../protocol/replies.js';
import { MAX_NAME_BYTES } from '../protocol/requests.js';

const STAT_BLOCK_BYTES = 512;
const MS_PER_SECOND = 1000;
const PREFERRED_READ_BYTES = 4096;
/** fuse-native passes the numbers of statfs(2) and inode numbers on as 32 bits. */
const UINT32_LIMIT = 2 ** 32;

export class PathAdapter {
  readonly #fileSystem: FileSystem;
  /** Inode numbers as this driver shows them: counted up, since 32 bits of the real ones might collide. */
  readonly #shownInodes = new Map<bigint, number>();

  constructor(fileSystem: FileSystem) {
    this.#fileSystem = fileSystem;
  }

  /** Errors: ENOENT, ENOTDIR, ENAMETOOLONG. */
  resolve(path: string): Attributes {
    let attributes = this.#fileSystem.attributes(ROOT_INODE);
    for (const name of path.split('/')) {
      if (name === '') continue;
      if (Buffer.byteLength(name) > MAX_NAME_BYTES) {
        throw new TmaxError('ENAMETOOLONG', 'a name is longer than 255 bytes', { level: 'debug' });
      }
      attributes = this.#fileSystem.lookup(attributes.inode, name);
    }
    return attributes;
  }

  stat(path: string): Stat {
    return this.#statOf(this.resolve(path));
  }

  /** Names and their attributes, "." and ".." first. */
  list(path: string): { readonly names: readonly string[]; readonly stats: readonly Stat[] } {
    const directory = this.resolve(path);
    const entries = this.#fileSystem.list(directory.inode);
    const own = this.#statOf(directory);
    return {
      names: ['.', '..', ...entries.map(({ name }) => name)],
      stats: [own, own, ...entries.map(({ attributes }) => this.#statOf(attributes))],
    };
  }

  statfs(): Statfs {
    const { blockSizeBytes, totalBlocks, freeBlocks, files } = this.#fileSystem.statistics();
    const scale = Math.ceil(totalBlocks / (UINT32_LIMIT - 1)) || 1;
    const free = Math.floor(freeBlocks / scale);
    return {
      bsize: blockSizeBytes * scale,
      frsize: blockSizeBytes * scale,
      blocks: Math.floor(totalBlocks / scale),
      bfree: free,
      bavail: free,
      files,
      namemax: MAX_NAME_BYTES,
    };
  }

  extendedAttribute(path: string, name: string): Buffer {
    if (!name.startsWith(ATTRIBUTE_NAMESPACE)) throw new TmaxError('ENOTSUP', name, { level: 'debug' });
    return this.#fileSystem.extendedAttribute(this.resolve(path).inode, name);
  }

  /** The names as listxattr(2) gives them: each ended by a NUL. */
  extendedAttributeNames(path: string): Buffer {
    const names = this.#fileSystem.extendedAttributeNames(this.resolve(path).inode);
    return Buffer.from(names.map((name) => `${name}\0`).join(''));
  }

  #statOf(attributes: Attributes): Stat {
    const timeMs = attributes.modifiedSeconds * MS_PER_SECOND;
    return {
      mode: fileType(attributes) | attributes.mode,
      uid: attributes.uid,
      gid: attributes.gid,
      size: attributes.sizeBytes,
      nlink: attributes.linkCount,
      ino: this.#shownInode(attributes.inode),
      blksize: PREFERRED_READ_BYTES,
      blocks: Math.ceil(attributes.sizeBytes / STAT_BLOCK_BYTES),
      atime: timeMs,
      mtime: timeMs,
      ctime: timeMs,
    };
  }

  #shownInode(inode: bigint): number {
    const known = this.#shownInodes.get(inode);
    if (known !== undefined) return known;
    const shown = this.#shownInodes.size + 1;
    this.#shownInodes.set(inode, shown);
    return shown;
  }
}
