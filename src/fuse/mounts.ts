/** Whether a directory can be mounted on, and what to do about what lies there already. */

import { readdir, stat } from 'node:fs/promises';
import type { Logger } from 'pino';
import { systemErrorCode, TmaxError, toTmaxError } from '../errors.js';
import { livenessOf } from './liveness.js';
import { MOUNT_TYPE, topMountAt } from './mount-table.js';
import { unmount } from './unmount.js';

/** What an automount lays on a mount point, to be mounted over. */
const AUTOMOUNT_TYPE = 'autofs';
/** How many dead mounts are taken off one mount point: each start after a crash may have left one. */
const MAX_DEAD_MOUNTS = 16;

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
  // Not looked into: whoever opens it is kept waiting for the very mount that is to be made.
  if (existing.type === AUTOMOUNT_TYPE) return 'free';
  if (existing.type !== MOUNT_TYPE) {
    throw refusal(
      'EBUSY',
      `${mountpoint} is a mount of ${existing.type} (${existing.source}); choose another directory`,
    );
  }
  if ((await livenessOf(existing)) === 'dead') return 'dead';
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
  if ((await takeAwayDeadMounts(mountpoint)) > 0) {
    log.warn({ mountpoint }, 'took away the dead mount of a tmaxfs that has ended without unmounting');
  }
  await checkMountpoint(mountpoint);
}

/**
 * Takes every dead mount of tmaxfs off `mountpoint` (absolute), down to what lives or is of another kind; returns how many.
 * Errors: those of `unmount`; EBUSY there are more than any row of crashes leaves.
 */
export async function takeAwayDeadMounts(mountpoint: string): Promise<number> {
  for (let taken = 0; taken <= MAX_DEAD_MOUNTS; taken += 1) {
    const mount = topMountAt(mountpoint);
    if (mount?.type !== MOUNT_TYPE || (await livenessOf(mount)) === 'live') return taken;
    await unmount(mountpoint, { lazy: true });
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
