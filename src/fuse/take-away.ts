/** How a driver takes its own mount away: out of the tree, then waiting for what is still open, then by force. */

import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { TmaxError } from '../errors.js';
import { abortConnection } from './abort.js';
import type { Holder } from './holders.js';
import { topMountAt } from './mount-table.js';
import { unmount } from './unmount.js';

/** How long the connection may take to end once it has been aborted. */
const ABORT_LIMIT_MS = 5000;
/** How often is looked whether a file is still open. */
const OPEN_FILES_CHECK_MS = 1000;

export interface OwnMount {
  readonly mountpoint: string;
  /** "major:minor" of the mounted file system; the minor number is that of the FUSE connection. */
  readonly deviceNumber: string | undefined;
  /** Resolves when the kernel has ended the connection. */
  readonly ended: Promise<void>;
  /** Who waits in an `open`, which /proc does not show. */
  readonly waitingHolders: readonly Holder[];
  /** Files that the kernel holds open. */
  readonly openFileCount: () => number;
  /** Ends the opens that still wait. */
  readonly abandonWaitingOpens: () => void;
  readonly log: Logger;
}

/** As `MountHandle.unmount`. */
export async function takeAway(
  mount: OwnMount,
  options: { readonly lazy: boolean; readonly drainTimeoutMs: number },
): Promise<void> {
  const mounted = topMountAt(mount.mountpoint);
  // Somebody else may have unmounted it lazily, and mounted something else there.
  if (mounted !== undefined && mounted.device === mount.deviceNumber) {
    await unmount(mount.mountpoint, { lazy: options.lazy, knownHolders: mount.waitingHolders });
  }
  mount.abandonWaitingOpens();
  if (await drained(mount, options.drainTimeoutMs)) return;
  await abort(mount);
  if (await endsWithin(mount.ended, ABORT_LIMIT_MS)) return;
  throw stuck(mount.mountpoint, undefined);
}

/**
 * Waits for the kernel to end the connection, which it does when nobody holds anything of it: up to the limit while files
 * are open, else not for long. A mount that another mount namespace keeps, or a working directory, is not waited for.
 */
async function drained(mount: OwnMount, limitMs: number): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const remainingMs = Math.max(0, deadline - performance.now());
    if (await endsWithin(mount.ended, Math.min(remainingMs, OPEN_FILES_CHECK_MS))) return true;
    if (performance.now() >= deadline || mount.openFileCount() === 0) return false;
  }
}

/** It is still used, on the detached mount or in another mount namespace. */
async function abort({ mountpoint, deviceNumber, log }: OwnMount): Promise<void> {
  log.warn({ mountpoint }, 'the mount that was taken away is still used: ending it');
  try {
    await abortConnection(deviceNumber?.split(':')[1] ?? '');
  } catch (error) {
    throw stuck(mountpoint, error);
  }
}

async function endsWithin(ended: Promise<void>, limitMs: number): Promise<boolean> {
  const given = new AbortController();
  const limit = delay(limitMs, false, { signal: given.signal }).catch(() => false);
  try {
    return await Promise.race([ended.then(() => true), limit]);
  } finally {
    given.abort();
  }
}

function stuck(mountpoint: string, cause: unknown): TmaxError {
  return new TmaxError(
    'ETIMEDOUT',
    `the mount on ${mountpoint} is gone from the tree, but somebody still uses it and this user can't end the connection (is /sys/fs/fuse/connections mounted?); it ends with this process`,
    { cause, source: 'kernel', level: 'error' },
  );
}
