/** Which mount a command means. */

import { realMountpoint } from '../daemon/mountpoint.js';
import { TmaxError } from '../errors.js';
import { tmaxfsMounts } from '../fuse/mount-table.js';

/** The mount point named, or the only one there is. Errors: ENOENT there is none; EINVAL there are several. */
export function chooseMount(named: string | undefined): string {
  if (named !== undefined) return realMountpoint(named);
  const mountpoints = mountpointsOfAll();
  const [only = '', ...others] = mountpoints;
  if (others.length === 0) return only;
  throw new TmaxError('EINVAL', `several are mounted, name one: ${mountpoints.join(', ')}`, { source: 'cli' });
}

/** At least one. Errors: ENOENT there is none. */
export function mountpointsOfAll(): readonly string[] {
  const mountpoints = new Set(tmaxfsMounts().map((mount) => mount.mountpoint));
  if (mountpoints.size > 0) return [...mountpoints];
  throw new TmaxError('ENOENT', 'nothing is mounted; see "tmaxfs mount --help"', { source: 'cli' });
}
