/**
 * Where daemons of one user keep their sockets and locks, and how clients find those: they ask the mount itself, by an
 * extended attribute of its root, and so need nothing of the daemon's environment.
 *
 * Each socket has a name that no other daemon uses: one that ends late can't take its successor's away. What lies in
 * `private` nobody else can reach, whatever its mode; the folder above may be entered by all.
 */

import { randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, readdirSync, rmdirSync, rmSync, type Stats, statSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemErrorCode, TmaxError } from '../errors.js';
import { makeFolder } from '../folders.js';

/** Extended attributes of the mount's root that hold the path of a socket, without their "user.tmaxfs.". */
export const CONTROL_ATTRIBUTE = 'control';
/** Only where others are let in: documents, no actions. */
export const STATUS_ATTRIBUTE = 'status';

/** sizeof(struct sockaddr_un.sun_path), without its closing NUL. */
const MAX_SOCKET_PATH_BYTES = 107;
/** A socket is bound a moment before it listens: younger ones are not taken for dead. */
const MIN_DEAD_SOCKET_AGE_MS = 10_000;

export type Environment = Readonly<Record<string, string | undefined>>;

export interface RuntimeDirectory {
  /** 0755. */
  readonly folder: string;
  /** Below it, 0700. */
  readonly private: string;
}

/**
 * Makes what is missing. `forOthers`: other users have to get at a socket in it, and so it is not below an XDG_RUNTIME_DIR
 * that is this user's alone. Errors: EPERM a folder is not this user's alone; EACCES it can't be made.
 */
export function makeRuntimeDirectory(environment: Environment, forOthers = false): RuntimeDirectory {
  const uid = process.getuid?.() ?? 0;
  const runtime = environment['XDG_RUNTIME_DIR']?.trim();
  const isUsable = runtime && !(forOthers && isPrivate(runtime));
  const folder = uid === 0 ? '/run/tmaxfs' : isUsable ? join(runtime, 'tmaxfs') : join(tmpdir(), `tmaxfs-${uid}`);
  const directory = { folder, private: join(folder, 'private') };
  makeOwnFolder(directory.folder, 0o755, uid);
  makeOwnFolder(directory.private, 0o700, uid);
  return directory;
}

function isPrivate(folder: string): boolean {
  const stats = statSync(folder, { throwIfNoEntry: false });
  return stats !== undefined && (stats.mode & 0o001) === 0;
}

function makeOwnFolder(folder: string, mode: number, uid: number): void {
  let stats: Stats;
  try {
    makeFolder(folder, mode);
    stats = lstatSync(folder);
  } catch (cause) {
    const message = `${folder} can't be made (${systemErrorCode(cause)}); set XDG_RUNTIME_DIR to a folder of this user`;
    throw new TmaxError('EACCES', message, { cause, source: 'daemon', level: 'error' });
  }
  if (!stats.isDirectory() || stats.uid !== uid || (stats.mode & 0o022) !== 0) {
    throw new TmaxError('EPERM', `${folder} is not a folder of this user alone; remove it, or set XDG_RUNTIME_DIR`, {
      source: 'daemon',
      level: 'error',
    });
  }
  if ((stats.mode & 0o777) !== mode) chmodSync(folder, mode);
}

/** Removes what is empty: a daemon leaves nothing behind, and others keep what is theirs. */
export function removeRuntimeDirectory(directory: RuntimeDirectory): void {
  for (const folder of [directory.private, directory.folder]) {
    try {
      rmdirSync(folder);
    } catch {
      // Another daemon has something in it.
    }
  }
}

/** A path in `folder` that no other daemon uses. Errors: ENAMETOOLONG. */
export function uniqueSocketPath(folder: string): string {
  const path = join(folder, `${process.pid}-${randomBytes(4).toString('hex')}.sock`);
  if (Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES) return path;
  throw new TmaxError('ENAMETOOLONG', `${folder} is too long a path for a socket; set XDG_RUNTIME_DIR to a shorter`, {
    source: 'daemon',
  });
}

/** Removes the sockets that daemons left which were killed: nobody listens on them. */
export async function removeDeadSockets(directory: RuntimeDirectory): Promise<void> {
  for (const folder of [directory.folder, directory.private]) {
    const names = readdirSync(folder).filter((name) => name.endsWith('.sock'));
    await Promise.all(
      names.map(async (name) => {
        const path = join(folder, name);
        if (isOld(path) && (await isDead(path))) rmSync(path, { force: true });
      }),
    );
  }
}

function isOld(path: string): boolean {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats?.isSocket() === true && Date.now() - stats.mtimeMs >= MIN_DEAD_SOCKET_AGE_MS;
}

/** Answered by the kernel at once: it refuses where nobody listens. */
function isDead(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.once('error', (error) => resolve(systemErrorCode(error) === 'ECONNREFUSED'));
  });
}
