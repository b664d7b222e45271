/**
 * Mounts of network file systems whose flock(2) works within each machine and not between them, as their options say:
 * `localflock` of Lustre (mount.lustre(8)), `local_lock=flock` and `local_lock=all` of NFS (nfs(5)).
 */

import { readFileSync, realpathSync } from 'node:fs';

const LOCAL_OPTIONS = ['localflock', 'local_lock=flock', 'local_lock=all'];

/** Whether what lies at `path` is on such a mount. Errors: those of finding the path. */
export function locksAreLocal(path: string): boolean {
  return areLocal(readFileSync('/proc/self/mountinfo', 'utf8'), realpathSync(path));
}

/** `mountInfo`: a process's mounts as proc(5) has them; `path`: absolute, without links. */
export function areLocal(mountInfo: string, path: string): boolean {
  let found = { mountpoint: '', options: [] as string[] };
  for (const line of mountInfo.split('\n')) {
    const [mount = '', fileSystem = ''] = line.split(' - ');
    const mountpoint = (mount.split(' ')[4] ?? '').replace(/\\([0-7]{3})/g, (_, digits) =>
      String.fromCharCode(Number.parseInt(digits, 8)),
    );
    const isAbove = mountpoint === '/' || path === mountpoint || path.startsWith(`${mountpoint}/`);
    // Of two on one place the later one is seen.
    if (!isAbove || mountpoint.length < found.mountpoint.length) continue;
    found = { mountpoint, options: (fileSystem.split(' ')[2] ?? '').split(',') };
  }
  return found.options.some((option) => LOCAL_OPTIONS.includes(option));
}
