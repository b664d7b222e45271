/** Takes a mount away, with or without the daemon that serves it. */

import { systemErrorCode, TmaxError, toTmaxError } from '../errors.js';
import { loadLibc, MNT_DETACH, UMOUNT_NOFOLLOW, unmount as umount2 } from '../libc.js';
import { unmountAsUser } from './fusermount.js';
import { describeHolders, findHolders, type Holder, MAX_HOLDERS } from './holders.js';

const UNKNOWN_HOLDER =
  process.geteuid?.() === 0
    ? 'by something that no open file, working directory or mapping in /proc shows (another mount on it, an open that has just ended)'
    : 'by a process that this user may not look at';

export interface UnmountOptions {
  /** Take it out of the tree at once even if it is busy; what is open stays open until it is closed. */
  readonly lazy: boolean;
  /** Holders that /proc does not show, to be named with the others. */
  readonly knownHolders?: readonly Holder[];
}

/**
 * Unmounts what is mounted on `mountpoint` (absolute): root by umount2(2), others (and root without koffi) by fusermount3.
 * Errors: EBUSY, naming who holds it; EPERM not ours to unmount; EINVAL nothing is mounted there (as root sees it).
 */
export async function unmount(mountpoint: string, options: UnmountOptions): Promise<void> {
  try {
    if (mayCallKernel()) await umount2(mountpoint, UMOUNT_NOFOLLOW | (options.lazy ? MNT_DETACH : 0));
    else await unmountAsUser(mountpoint, options);
  } catch (error) {
    throw await explained(error, mountpoint, options.knownHolders ?? []);
  }
}

function mayCallKernel(): boolean {
  if (process.geteuid?.() !== 0) return false;
  try {
    loadLibc();
    return true;
  } catch {
    return false;
  }
}

async function explained(error: unknown, mountpoint: string, known: readonly Holder[]): Promise<TmaxError> {
  const code = error instanceof TmaxError ? error.errno : systemErrorCode(error);
  switch (code) {
    case 'EBUSY': {
      const holders = [...known, ...(await findHolders(mountpoint))].slice(0, MAX_HOLDERS);
      const who = holders.length === 0 ? UNKNOWN_HOLDER : `by ${describeHolders(holders)}`;
      const advice = 'end those processes, or unmount with --lazy';
      return new TmaxError('EBUSY', `${mountpoint} is in use ${who}; ${advice}`, { cause: error, source: 'kernel' });
    }
    case 'EINVAL':
      return new TmaxError('EINVAL', `nothing is mounted on ${mountpoint}`, { cause: error, source: 'kernel' });
    case 'ENOENT':
      return new TmaxError('ENOENT', `${mountpoint} does not exist`, { cause: error, source: 'kernel' });
    case 'EPERM': {
      const message = `only root or who mounted it can unmount ${mountpoint}`;
      return new TmaxError('EPERM', message, { cause: error, source: 'kernel' });
    }
    default:
      return toTmaxError(error, 'kernel');
  }
}
