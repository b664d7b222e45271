/**
 * One start at a time on one mount point: whoever checks it, clears it of dead mounts and mounts on it holds this lock
 * meanwhile. Once something is mounted, the mount itself keeps others away.
 *
 * The lock is an exclusive flock on a file that its holder removes: a lock counts only while its file is still in the
 * folder, and one whose holder has died is free.
 */

import { createHash } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { systemErrorCode, TmaxError } from '../errors.js';
import { flock } from '../libc.js';
import { type Environment, makeRuntimeDirectory, removeRuntimeDirectory } from './runtime-directory.js';

/** Each attempt fails only if another daemon ended right then. */
const MAX_ATTEMPTS = 100;

export interface MountLock {
  /** Frees it. To be called once. */
  release(): void;
}

/** Errors: EBUSY another process is mounting there; those of `makeRuntimeDirectory`. */
export function lockMountpoint(mountpoint: string, environment: Environment): MountLock {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const runtime = makeRuntimeDirectory(environment);
    const path = join(runtime.private, `${lockName(mountpoint)}.lock`);
    const descriptor = openLock(path);
    if (descriptor === undefined) continue;
    if (!flock(descriptor, 'exclusiveNonBlocking')) {
      closeSync(descriptor);
      throw beingMounted(mountpoint, path);
    }
    if (lstatSync(path, { throwIfNoEntry: false })?.ino === fstatSync(descriptor).ino) {
      ftruncateSync(descriptor);
      writeSync(descriptor, String(process.pid));
      return {
        release: () => {
          rmSync(path, { force: true });
          // A child process that is just being started may have a copy of the descriptor.
          flock(descriptor, 'unlock');
          closeSync(descriptor);
          removeRuntimeDirectory(runtime);
        },
      };
    }
    flock(descriptor, 'unlock');
    closeSync(descriptor);
  }
  throw beingMounted(mountpoint, undefined);
}

/** The same path in two mount namespaces is two mount points. */
function lockName(mountpoint: string): string {
  const namespace = readlinkSync('/proc/self/ns/mnt');
  return createHash('sha256').update(`${namespace}\0${mountpoint}`).digest('hex').slice(0, 16);
}

/** Undefined where the folder has been removed in between. */
function openLock(path: string): number | undefined {
  try {
    return openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600);
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function beingMounted(mountpoint: string, path: string | undefined): TmaxError {
  const pid = path === undefined ? '' : holderOf(path);
  const who = pid === '' ? 'another tmaxfs' : `another tmaxfs (pid ${pid})`;
  return new TmaxError('EBUSY', `${who} is being mounted on ${mountpoint} right now; wait for it, or end it`, {
    source: 'daemon',
  });
}

function holderOf(path: string): string {
  try {
    return /^\d+$/.exec(readFileSync(path, 'utf8'))?.[0] ?? '';
  } catch {
    return '';
  }
}
