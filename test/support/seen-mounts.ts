/** Commands that look at all mounts of tmaxfs on this machine, of which other tests have some too. */

const AMONG = `
  while read -r mountpoint; do
    case " $1 " in *" $mountpoint "*) ;; *) umount --lazy "$mountpoint" ;; esac
  done < <(findmnt --noheadings --raw --output TARGET --types fuse.tmaxfs)
  shift
  exec "$@"`;

/** A command of root's, and its arguments, that runs another, which sees only these of them. */
export function seeingOnly(mountpoints: readonly string[]): readonly string[] {
  return ['unshare', '--mount', 'bash', '-c', AMONG, 'bash', mountpoints.join(' ')];
}
