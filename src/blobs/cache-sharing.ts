/**
 * A cache directory that a group shares, where that is asked for. Its root says who that is: the group that it belongs to. What
 * is made in it belongs to that group too (by the set-gid bits), and lets it in, whatever the umask of who makes it.
 *
 * Folders that hold only folders have the sticky bit, and those in them are made with the cache: so the kernel lets nobody put a
 * link in the place of a folder but who has made it, or the one that it lies in. Folders of files have no sticky bit: each
 * member evicts what others have brought.
 */

import { closeSync, constants, fchmodSync, fchownSync, fstatSync, mkdirSync, openSync, type Stats } from 'node:fs';
import { access, type FileHandle, stat } from 'node:fs/promises';
import { systemErrorCode, TmaxError } from '../errors.js';

const STICKY = 0o1000;
const SET_GID = 0o2000;
const GROUP = 0o070;
const OTHERS_READ = 0o005;
const OTHERS_WRITE = 0o002;
const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

export interface FolderFault {
  readonly what: string;
  /** The command that mends it. */
  readonly remedy: string;
}

export class CacheSharing {
  readonly groupId: number;
  /** What everybody else may do, as the root says: to look, at most. */
  readonly #others: number;

  constructor(root: Pick<Stats, 'gid' | 'mode'>) {
    this.groupId = root.gid;
    this.#others = root.mode & OTHERS_READ;
  }

  /** Of files that are only ever replaced. */
  get readableMode(): number {
    return 0o640 | (this.#others & 0o004);
  }

  /** Of files that others lock, which a network file system lets only those do who may write. */
  get writableMode(): number {
    return 0o660;
  }

  folderMode(holdsFolders: boolean): number {
    return SET_GID | (holdsFolders ? STICKY : 0) | 0o770 | this.#others;
  }

  /** What is wrong with a folder of the cache; undefined where it is as it must be. */
  faultOf(path: string, stats: Stats, holdsFolders: boolean): FolderFault | undefined {
    if (!stats.isDirectory())
      return { what: 'is not a directory, and no link is followed there', remedy: `rm ${path}` };
    const mode = this.folderMode(holdsFolders);
    const chmod = `chmod ${mode.toString(8)} ${path}`;
    if (stats.gid !== this.groupId) {
      const what = `belongs to group ${stats.gid}, not to group ${this.groupId} as the cache directory itself`;
      return { what, remedy: `chgrp ${this.groupId} ${path} && ${chmod}` };
    }
    const what = modeFault(stats.mode, holdsFolders);
    if (what === undefined) return undefined;
    return { what: `${what} (mode ${(stats.mode & 0o7777).toString(8)})`, remedy: chmod };
  }

  /** Lets the group lock a file that this process has made or found, where it is this user's. Errors: those of the disk. */
  async admit(handle: FileHandle, { uid, mode }: Stats): Promise<void> {
    if (isOwn(uid) && (mode & 0o777) !== this.writableMode) await handle.chmod(this.writableMode);
  }
}

/**
 * How the root of a cache says that a group shares it; the root is the administrator's, and never made or changed here.
 * Errors: ENOENT it is not there; EPERM it is not for a group alone; EACCES this user is not of the group.
 */
export async function readSharing(root: string): Promise<CacheSharing> {
  const refuse = (errno: 'ENOENT' | 'EPERM' | 'EACCES', words: string, cause?: unknown) =>
    new TmaxError(errno, `the shared cache directory ${root} ${words}`, { cause, source: 'cache', level: 'error' });
  let stats: Stats;
  try {
    stats = await stat(root);
  } catch (cause) {
    const make = `install -d -m 3770 -g GROUP ${root}`;
    const code = systemErrorCode(cause);
    if (code === 'ENOENT')
      throw refuse(
        'ENOENT',
        `is not there; make it for its group: ${make}; or name one that the group can reach with --cache-dir`,
        cause,
      );
    throw refuse('EACCES', `can't be looked at (${code}); let its group in, or name another with --cache-dir`, cause);
  }
  if (!stats.isDirectory()) throw refuse('EPERM', 'is not a directory; name one with --cache-dir');
  const sharing = new CacheSharing(stats);
  const fault = sharing.faultOf(root, stats, true);
  if (fault !== undefined) throw refuse('EPERM', `${fault.what}; run ${fault.remedy}`);
  try {
    await access(root, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (cause) {
    // A disk that is read-only is served from.
    if (systemErrorCode(cause) !== 'EROFS') {
      const words = `is for members of group ${stats.gid}, and this user (${process.getuid?.()}) is none; a new member logs in anew`;
      throw refuse('EACCES', words, cause);
    }
  }
  return sharing;
}

function modeFault(mode: number, holdsFolders: boolean): string | undefined {
  if ((mode & OTHERS_WRITE) !== 0) return 'can be written by everybody, who could plant what was never proven';
  if ((mode & GROUP) !== GROUP) return 'does not let its group in to read and write';
  if ((mode & SET_GID) === 0) return 'has no set-gid bit: what is made in it would not be the group’s';
  const isSticky = (mode & STICKY) !== 0;
  if (isSticky === holdsFolders) return undefined;
  return isSticky
    ? 'has the sticky bit: no member could evict what another has brought'
    : 'has no sticky bit: a member could put links in the place of its folders';
}

/** Whether something belongs to the user of this process. */
export function isOwn(uid: number): boolean {
  return uid === (process.geteuid?.() ?? 0);
}

/**
 * mkdir(2) with this very mode. A chmod after it would, for a moment, show others a folder that does not let them in. The umask is
 * the whole process's: what other threads make in that moment has narrow modes of its own. Errors: those of mkdir(2).
 */
export function makeFolderOfMode(path: string, mode: number): void {
  const umask = process.umask(0o777 & ~mode);
  try {
    mkdirSync(path, { mode });
  } finally {
    process.umask(umask);
  }
}

/** Gives a folder of this user's the group and mode; what can't be mended is for a later look to refuse. */
export function mendFolder(path: string, sharing: CacheSharing, holdsFolders: boolean): void {
  let descriptor: number | undefined;
  try {
    descriptor = openSync(path, FOLDER);
    const stats = fstatSync(descriptor);
    if (!isOwn(stats.uid) || sharing.faultOf(path, stats, holdsFolders) === undefined) return;
    fchownSync(descriptor, stats.uid, sharing.groupId);
    fchmodSync(descriptor, sharing.folderMode(holdsFolders));
  } catch {
    // Said by who looks next, with what to do.
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}
