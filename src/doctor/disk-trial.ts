/**
 * A program of its own that touches what may hang: `disk-trial.js cache FOLDER` tries a folder as a disk for the cache of this
 * user, `disk-trial.js shared-cache FOLDER` for that of its group,
 * `disk-trial.js mount FOLDER` asks whether a mount still has its daemon. One line of JSON on standard output.
 *
 * A call to a dead network disk can't be interrupted: so it hangs here, and not in who asks. Everything that it makes in the
 * folder is gone when it ends.
 */

import {
  closeSync,
  fsyncSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  realpathSync,
  rmSync,
  statfsSync,
  statSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { refuseUnsafe } from '../blobs/cache-folder.js';
import { CacheLayout } from '../blobs/cache-layout.js';
import { readSharing } from '../blobs/cache-sharing.js';
import { CACHE_TAG_NAME } from '../cache-tag.js';
import { messageOf, systemErrorCode } from '../errors.js';
import { flock } from '../libc.js';

export interface CacheTrial {
  /** The folder itself, or where that is still to be made, the nearest one above it; free of links. */
  readonly folder: string;
  readonly exists: boolean;
  /** It holds something, and is no cache of ours. */
  readonly isForeign: boolean;
  /** Of a cache that is to be shared: why a mount would refuse it for whom it lets in, and what to do; null where it would not. */
  readonly refusal: string | null;
  /** The group that shares it. */
  readonly groupId: number | null;
  readonly totalBytes: number;
  /** To this user. */
  readonly availableBytes: number;
  /** What images take in it already. */
  readonly cachedBytes: number;
  /** Null where the file system does not count them. */
  readonly availableFiles: number | null;
  /** Code of the error of making and syncing a file, null where that works. */
  readonly writeError: string | null;
  /** How long that took. */
  readonly writeMs: number;
  /** Whether a second lock on one file was refused, as it must be; null where it was not tried. */
  readonly locksExclude: boolean | null;
  readonly lockError: string | null;
}

export interface MountTrial {
  readonly error: string | null;
}

/** Larger than what a file system keeps within its inode. */
const TRIAL_BYTES = 64 * 1024;
/** Of `st_blocks`. */
const BLOCK_BYTES = 512;

async function tryCache(wanted: string, isShared: boolean): Promise<CacheTrial> {
  const folder = nearestFolder(wanted);
  const exists = folder === wanted;
  const permission = isShared ? await tryPermission(wanted) : { refusal: null, groupId: null };
  try {
    const { bsize, blocks, bavail, files, ffree } = statfsSync(folder);
    const names = exists ? readdirOrNothing(folder) : [];
    return {
      folder: realpathSync(folder),
      exists,
      isForeign: names.length > 0 && !names.includes(CACHE_TAG_NAME),
      ...permission,
      totalBytes: bsize * blocks,
      availableBytes: bsize * bavail,
      cachedBytes: exists ? sizeOfBlobs(new CacheLayout(folder).blobs) : 0,
      availableFiles: files === 0 ? null : ffree,
      ...tryFiles(folder),
    };
  } catch (error) {
    const writeError = systemErrorCode(error) ?? 'EIO';
    return { ...NOTHING, ...permission, folder, exists, writeError };
  }
}

/** Of a folder that can't even be looked at. */
const NOTHING: Omit<CacheTrial, 'folder' | 'exists' | 'writeError' | 'refusal' | 'groupId'> = {
  isForeign: false,
  totalBytes: 0,
  availableBytes: 0,
  cachedBytes: 0,
  availableFiles: null,
  writeMs: 0,
  locksExclude: null,
  lockError: null,
};

/** As opening the cache would find it. */
async function tryPermission(folder: string): Promise<Pick<CacheTrial, 'refusal' | 'groupId'>> {
  try {
    const sharing = await readSharing(folder);
    await refuseUnsafe(new CacheLayout(folder, sharing));
    return { refusal: null, groupId: sharing.groupId };
  } catch (error) {
    return { refusal: messageOf(error), groupId: null };
  }
}

function nearestFolder(path: string): string {
  try {
    if (statSync(path).isDirectory()) return path;
  } catch (error) {
    if (systemErrorCode(error) === 'EACCES') return path;
  }
  return dirname(path) === path ? path : nearestFolder(dirname(path));
}

function readdirOrNothing(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    // That it can't be read is found out by writing into it.
    return [];
  }
}

function sizeOfBlobs(folder: string): number {
  let bytes = 0;
  for (const shard of readdirOrNothing(folder)) {
    for (const name of readdirOrNothing(join(folder, shard))) {
      bytes += (lstatSync(join(folder, shard, name), { throwIfNoEntry: false })?.blocks ?? 0) * BLOCK_BYTES;
    }
  }
  return bytes;
}

function tryFiles(folder: string): Pick<CacheTrial, 'writeError' | 'writeMs' | 'locksExclude' | 'lockError'> {
  const startedAtMs = performance.now();
  let own: string | undefined;
  try {
    own = mkdtempSync(join(folder, '.tmaxfs-doctor-'));
    const path = join(own, 'trial');
    const descriptor = openSync(path, 'wx', 0o600);
    try {
      writeSync(descriptor, Buffer.alloc(TRIAL_BYTES, 1));
      fsyncSync(descriptor);
      const writeMs = Math.round(performance.now() - startedAtMs);
      return { writeError: null, writeMs, ...tryLocks(path, descriptor) };
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    const writeMs = Math.round(performance.now() - startedAtMs);
    return { writeError: systemErrorCode(error) ?? 'EIO', writeMs, locksExclude: null, lockError: null };
  } finally {
    if (own !== undefined) rmSync(own, { recursive: true, force: true });
  }
}

/** Two descriptions of one file must exclude each other, as two daemons would have to. */
function tryLocks(path: string, first: number): Pick<CacheTrial, 'locksExclude' | 'lockError'> {
  const second = openSync(path, 'r+');
  try {
    const locksExclude = flock(first, 'exclusiveNonBlocking') && !flock(second, 'exclusiveNonBlocking');
    return { locksExclude, lockError: null };
  } catch (error) {
    return { locksExclude: null, lockError: systemErrorCode(error) ?? 'EIO' };
  } finally {
    closeSync(second);
  }
}

/** statfs(2) is always passed on to the daemon. */
function tryMount(mountpoint: string): MountTrial {
  try {
    statfsSync(mountpoint);
    return { error: null };
  } catch (error) {
    return { error: systemErrorCode(error) ?? 'EIO' };
  }
}

const [, program = '', kind, folder = '/'] = process.argv;
if (import.meta.url === pathToFileURL(realpathSync(program)).href) {
  const trial = kind === 'mount' ? tryMount(folder) : await tryCache(folder, kind === 'shared-cache');
  process.stdout.write(`${JSON.stringify(trial)}\n`);
}
