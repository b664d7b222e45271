/** The mounts of tmaxfs that are there already, dead or alive, and the mount point that is to be one. */

import { wordsOf } from '../../errors.js';
import { type Mount, tmaxfsMounts, topMountAt } from '../../fuse/mount-table.js';
import { checkMountpoint } from '../../fuse/mounts.js';
import { error, note, ok, type Remark } from '../finding.js';
import type { Machine } from '../machine.js';
import { tryMountpoint } from '../trial.js';

/** Each takes a process to ask. */
const MAX_ASKED = 16;

export async function mounts(machine: Machine): Promise<readonly Remark[]> {
  const { mountpoint } = machine;
  // Of several on one path only the last can be reached.
  const all = [...new Map(tmaxfsMounts().map((mount) => [mount.mountpoint, mount])).values()];
  const chosen = mountpoint === undefined ? all : all.filter((mount) => mount.mountpoint === mountpoint);
  const remarks = await Promise.all(chosen.slice(0, MAX_ASKED).map((mount) => describe(machine, mount)));
  if (mountpoint !== undefined && chosen.length === 0) return [await free(mountpoint)];
  if (chosen.length === 0) return [ok('nothing is mounted')];
  if (chosen.length <= MAX_ASKED) return remarks;
  return [...remarks, note(`${chosen.length - MAX_ASKED} more mounts were not asked`, 'there are so many of them')];
}

async function describe({ uid }: Machine, { mountpoint, source }: Mount): Promise<Remark> {
  const trial = await tryMountpoint(mountpoint);
  const unmount = uid === 0 ? `umount -l ${mountpoint}` : `fusermount3 -u -z ${mountpoint}`;
  if (trial === undefined) {
    const why = 'whoever looks at it hangs, until killed';
    const remedy = `tmaxfs status ${mountpoint}; if that says nothing: ${unmount}`;
    return error(`${mountpoint} (${source}) does not answer: its daemon hangs`, why, remedy);
  }
  if (trial.error === null) return ok(`${mountpoint} (${source}) is served`);
  if (trial.error === 'EACCES' || trial.error === 'EPERM') {
    return note(`${mountpoint} is another user's`, 'who has not let others in; not even root can look into it');
  }
  const why = 'every access fails with "Transport endpoint is not connected"';
  const remedy = `tmaxfs mount ${mountpoint} (takes it away and mounts anew), or tmaxfs unmount --dead ${mountpoint}`;
  return error(`${mountpoint} is dead (${trial.error}): its daemon has ended without unmounting`, why, remedy);
}

/** Whether it can be mounted on. */
async function free(mountpoint: string): Promise<Remark> {
  const other = topMountAt(mountpoint);
  try {
    await checkMountpoint(mountpoint);
    return ok(`${mountpoint} can be mounted on`);
  } catch (thrown) {
    const isMounted = other === undefined ? '' : ` (${other.type})`;
    return error(wordsOf(thrown), `tmaxfs mount ${mountpoint} is refused${isMounted}`, null);
  }
}
