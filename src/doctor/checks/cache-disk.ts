/** Whether the disk of the cache can be one: room, kind, and locks that hold. Tried by writing a small file, which is removed. */

import { bytesOf, formatBytes } from '../../daemon/amount.js';
import { type Mount, readMounts } from '../../fuse/mount-table.js';
import type { CacheTrial } from '../disk-trial.js';
import { error, note, ok, type Remark, warning } from '../finding.js';
import type { Machine } from '../machine.js';
import { tryCacheFolder } from '../trial.js';

const IN_MEMORY = new Set(['tmpfs', 'ramfs']);
const OVER_NETWORK = /^(?:nfs4?|lustre|gpfs|beegfs|cephfs?|cifs|smb3|glusterfs|9p|afs|fuse\..+)$/;
/** A cache of images has few files, each with a proof beside it. */
const MIN_FILES = 2_000;
const SLOW_WRITE_MS = 2_000;
const ELSEWHERE = 'name a folder on a local disk with --cache-dir (TMAXFS_CACHE_DIR)';

/** The mount that a path lies on, by the mount table alone: the path is not touched. */
export function fileSystemOf(path: string, mounts: readonly Mount[] = readMounts()): Mount {
  const holds = ({ mountpoint }: Mount) =>
    mountpoint === '/' || path === mountpoint || path.startsWith(`${mountpoint}/`);
  const holders = mounts.filter(holds);
  // The longest; of two on one path, the later covers the earlier.
  const longest = holders.reduce((most, { mountpoint }) => Math.max(most, mountpoint.length), 0);
  const found = holders.findLast(({ mountpoint }) => mountpoint.length === longest);
  return found ?? { id: 0, device: '0:0', mountpoint: '/', type: 'unknown', source: 'unknown', superOptions: [] };
}

export async function cacheDisk(machine: Machine): Promise<readonly Remark[]> {
  const { cacheDirectory, sharedCache } = machine.settings;
  const trial = await tryCacheFolder(cacheDirectory, sharedCache);
  if (trial === undefined) {
    const { type, mountpoint } = fileSystemOf(cacheDirectory);
    const what = `the disk of the cache does not answer (${cacheDirectory} on ${mountpoint}, ${type})`;
    return [error(what, 'the daemon would hang with it', ELSEWHERE)];
  }
  return remarksOn(machine, trial, fileSystemOf(trial.folder));
}

/** What the answers of a disk mean. */
export function remarksOn(machine: Machine, trial: CacheTrial, { type, mountpoint }: Mount): readonly Remark[] {
  const { cacheDirectory } = machine.settings;
  const { refusal, groupId } = trial;
  // Who is not let into a shared one can't write there either.
  if (refusal !== null) return [refused(refusal)];
  if (trial.writeError !== null) return [unwritable(cacheDirectory, trial)];
  if (trial.isForeign) {
    const what = `${cacheDirectory} holds other things than a cache of tmaxfs`;
    return [
      error(what, 'a mount refuses it: what is unknown in a cache is removed', 'name another folder with --cache-dir'),
    ];
  }
  const shared = groupId === null ? [] : [ok(`${trial.folder} is shared by the members of group ${groupId}`)];
  return [...room(machine, trial, type), ...shared, ...kind(trial, type, mountpoint), locks(trial, type)];
}

/** Errors of the cache say what is wrong, and then what to do. */
function refused(refusal: string): Remark {
  const [what = '', ...remedies] = refusal.split('; ');
  return error(what, 'a mount refuses it', remedies.join('; ') || ELSEWHERE);
}

function unwritable(cacheDirectory: string, { folder, exists, writeError }: CacheTrial): Remark {
  const place = exists ? cacheDirectory : `${cacheDirectory} can't be made: ${folder}`;
  const why = exists ? 'what is on it is served, and nothing can be fetched' : 'nothing can be fetched without a cache';
  if (writeError === 'ENOSPC' || writeError === 'EDQUOT') {
    return error(`${place} is full (${writeError})`, why, 'free some of it, or name another folder with --cache-dir');
  }
  return error(
    `${place} can't be written (${writeError})`,
    why,
    'name a folder of this user with --cache-dir, or mend its mode',
  );
}

function room({ settings }: Machine, trial: CacheTrial, type: string): readonly Remark[] {
  const { totalBytes, availableBytes, cachedBytes, availableFiles } = trial;
  const limitBytes = bytesOf(settings.cacheSize, totalBytes);
  const reserveBytes = bytesOf(settings.reserveFree, totalBytes);
  const growableBytes = Math.max(0, cachedBytes + availableBytes - reserveBytes);
  const free = `${formatBytes(availableBytes)} free of ${formatBytes(totalBytes)}`;
  const remarks: Remark[] = [];
  if (growableBytes === 0) {
    const what = `${trial.folder} (${type}) has ${free}, and --reserve-free keeps ${formatBytes(reserveBytes)}`;
    const remedy = 'free some of the disk, lower --reserve-free, or name another disk with --cache-dir';
    remarks.push(error(what, 'no image can be fetched (ENOSPC)', remedy));
  } else if (limitBytes > growableBytes) {
    remarks.push(
      warning(
        `${trial.folder} (${type}) has ${free}: the cache can't grow to its limit of ${formatBytes(limitBytes)}`,
        `it holds ${formatBytes(growableBytes)} at most beside the reserve, and evicts earlier than the limit says`,
        `--cache-size ${Math.floor(growableBytes / 2 ** 20)}M, or --cache-dir on a larger disk`,
      ),
    );
  } else {
    remarks.push(ok(`${trial.folder} (${type}) has ${free}; the limit is ${formatBytes(limitBytes)}`));
  }
  if (availableFiles !== null && availableFiles < MIN_FILES) {
    const what = `the disk of the cache has only ${availableFiles} inodes left`;
    const remedy = 'remove small files from it, or name another disk with --cache-dir';
    remarks.push(error(what, 'every image takes two', remedy));
  }
  return remarks;
}

function kind({ folder, writeMs }: CacheTrial, type: string, mountpoint: string): readonly Remark[] {
  const remarks: Remark[] = [];
  if (IN_MEMORY.has(type)) {
    const why = 'every cached image takes memory from the jobs of this machine, and is gone after a restart of it';
    remarks.push(warning(`the cache lies in memory (${type} on ${mountpoint})`, why, ELSEWHERE));
  } else if (OVER_NETWORK.test(type)) {
    const why = 'every byte crosses the network twice, and when that disk hangs, images hang';
    remarks.push(warning(`the cache lies on a network disk (${type} on ${mountpoint})`, why, ELSEWHERE));
  }
  if (writeMs > SLOW_WRITE_MS) {
    const what = `writing and syncing a small file in ${folder} took ${writeMs} ms`;
    remarks.push(warning(what, 'every fetch ends with such a sync', 'look for who keeps that disk busy: iostat -x 1'));
  }
  return remarks;
}

function locks({ folder, locksExclude, lockError }: CacheTrial, type: string): Remark {
  if (locksExclude === true) return ok('file locks (flock) hold on it');
  const what = `file locks (flock) do not hold on ${folder} (${type}${lockError === null ? '' : `, ${lockError}`})`;
  const why = 'a lock is what keeps an image from being evicted while it is open, and two daemons apart';
  const remedy = type === 'lustre' ? 'mount Lustre with -o flock, or use a local disk with --cache-dir' : ELSEWHERE;
  return error(what, why, remedy);
}

/** Where apptainer unpacks and jobs write: the other place that fills memory unseen. */
export async function temporaryFolder({ environment }: Machine): Promise<readonly Remark[]> {
  const folder = environment['APPTAINER_TMPDIR']?.trim() || environment['TMPDIR']?.trim() || '/tmp';
  const { type } = fileSystemOf(folder);
  if (!IN_MEMORY.has(type)) return [ok(`${folder} lies on ${type}`)];
  return [
    note(
      `${folder} lies in memory (${type})`,
      'what apptainer unpacks and sandboxes write there is taken from the memory of the jobs',
      'export APPTAINER_TMPDIR=/folder/on/a/disk',
    ),
  ];
}
