/**
 * The mounts of this machine, seen without the daemons that serve them: which are ours, whether one still has its
 * daemon, and whether a directory can be mounted on.
 */

import { readdir, stat, statfs } from 'node:fs/promises';
import type { Logger } from 'pino';
import { systemErrorCode, TmaxError, toTmaxError } from '../errors.js';
import { MOUNT_TYPE, topMountAt } from './mount-table.js';
import { unmount } from './unmount.js';

/** How long a mount may take to say that it lives; one that says nothing is taken for live, since it can't be proven dead. */
const LIVENESS_LIMIT_MS = 5000;
/** How many dead mounts are taken off one mount point: each start after a crash may have left one. */
const MAX_DEAD_MOUNTS = 16;

export type Liveness = 'live' | 'dead';

/**
 * Whether a mount of tmaxfs still has its daemon. Asks by statfs(2), which the kernel always passes on: it may answer
 * stat(2) out of its cache long after the daemon has gone. Where a live daemon does not answer within the limit, a thread
 * of this process goes on waiting for it, and only `exitNow` of libc.ts ends the process without it.
 */
export async function livenessOf(mountpoint: string): Promise<Liveness> {
  const answer = statfs(mountpoint).then(
    (): Liveness => 'live',
    (error): Liveness => (systemErrorCode(error) === 'ENOTCONN' ? 'dead' : 'live'),
  );
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<Liveness>((resolve) => {
    timer = setTimeout(resolve, LIVENESS_LIMIT_MS, 'live');
  });
  return Promise.race([answer, limit]).finally(() => clearTimeout(timer));
}

/**
 * Looks whether `mountpoint` (absolute) can be mounted on, and changes nothing: it may carry a dead mount of tmaxfs, to be
 * taken away first. Each refusal says what to do.
 * Errors: ENOENT, ENOTDIR, EEXIST (not empty), EBUSY (mounted already), EACCES.
 */
export async function checkMountpoint(mountpoint: string): Promise<'free' | 'dead'> {
  const existing = topMountAt(mountpoint);
  if (existing === undefined) {
    await checkDirectory(mountpoint);
    return 'free';
  }
  if (existing.type !== MOUNT_TYPE) {
    throw refusal(
      'EBUSY',
      `${mountpoint} is a mount of ${existing.type} (${existing.source}); choose another directory`,
    );
  }
  if ((await livenessOf(mountpoint)) === 'dead') return 'dead';
  throw refusal(
    'EBUSY',
    `${mountpoint} is already served by a running tmaxfs (${existing.source}); unmount it first (tmaxfs unmount ${mountpoint}) or choose another directory`,
  );
}

/**
 * Makes sure that `mountpoint` (absolute) can be mounted on, and takes dead mounts of tmaxfs off it; never a live one,
 * and never one of another kind. Errors: those of `checkMountpoint`.
 */
export async function prepareMountpoint(mountpoint: string, log: Logger): Promise<void> {
  for (let attempt = 0; attempt < MAX_DEAD_MOUNTS; attempt += 1) {
    if ((await checkMountpoint(mountpoint)) === 'free') return;
    await unmount(mountpoint, { lazy: true });
    log.warn({ mountpoint }, 'took away the dead mount of a tmaxfs that has ended without unmounting');
  }
  throw refusal('EBUSY', `${mountpoint} carries more than ${MAX_DEAD_MOUNTS} dead mounts; unmount them (umount -l)`);
}

async function checkDirectory(mountpoint: string): Promise<void> {
  try {
    if (!(await stat(mountpoint)).isDirectory()) {
      throw refusal('ENOTDIR', `${mountpoint} is not a directory; name a directory to mount on`);
    }
    const entries = await readdir(mountpoint);
    if (entries.length > 0) {
      throw refusal(
        'EEXIST',
        `${mountpoint} is not empty, and a mount would hide what is in it; name an empty directory`,
      );
    }
  } catch (error) {
    const code = systemErrorCode(error);
    if (code === 'ENOENT') throw refusal('ENOENT', `${mountpoint} does not exist; create it (mkdir -p ${mountpoint})`);
    if (code === 'EACCES')
      throw refusal('EACCES', `${mountpoint} can't be entered by this user; choose another directory`);
    throw toTmaxError(error, 'kernel');
  }
}

function refusal(errno: 'ENOENT' | 'ENOTDIR' | 'EEXIST' | 'EBUSY' | 'EACCES', message: string): TmaxError {
  return new TmaxError(errno, message, { source: 'kernel' });
}
