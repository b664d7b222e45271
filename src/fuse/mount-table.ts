/** /proc/self/mountinfo as data. Source of the format: Linux's Documentation/filesystems/proc.rst, section 3.5. */

import { readFileSync } from 'node:fs';

export interface Mount {
  readonly id: number;
  /** "major:minor" of the file system's device; for FUSE the minor is the number of the connection. */
  readonly device: string;
  readonly mountpoint: string;
  /** File system type, with its subtype: "fuse.tmaxfs". */
  readonly type: string;
  readonly source: string;
  /** Options of the file system, as "user_id=0". */
  readonly superOptions: readonly string[];
}

/** The type of every mount of this project. */
export const MOUNT_TYPE = 'fuse.tmaxfs';

/** All mounts of this process's mount namespace, in the kernel's order: of two on one path, the later covers the earlier. */
export function readMounts(): readonly Mount[] {
  return parseMountInfo(readFileSync('/proc/self/mountinfo', 'utf8'));
}

/** The mount that a path lookup of `mountpoint` ends in, if something is mounted right there. */
export function topMountAt(mountpoint: string, mounts: readonly Mount[] = readMounts()): Mount | undefined {
  return mounts.findLast((mount) => mount.mountpoint === mountpoint);
}

/** All mounts of tmaxfs, whosever they are. */
export function tmaxfsMounts(mounts: readonly Mount[] = readMounts()): readonly Mount[] {
  return mounts.filter((mount) => mount.type === MOUNT_TYPE);
}

/** Parses the text of a mountinfo file; lines that don't fit the format are left out. */
export function parseMountInfo(text: string): readonly Mount[] {
  return text.split('\n').flatMap((line) => parseLine(line) ?? []);
}

/** `id parent device root mountpoint options [tag…] - type source superOptions` */
function parseLine(line: string): Mount | undefined {
  const fields = line.split(' ');
  const separator = fields.indexOf('-', 6);
  if (separator < 0) return undefined;
  const [id, , device, , mountpoint] = fields;
  const [type, source, superOptions] = fields.slice(separator + 1);
  if (id === undefined || device === undefined || mountpoint === undefined) return undefined;
  if (type === undefined || source === undefined || superOptions === undefined) return undefined;
  return {
    id: Number(id),
    device,
    mountpoint: unescapeOctal(mountpoint),
    type: unescapeOctal(type),
    source: unescapeOctal(source),
    superOptions: superOptions.split(','),
  };
}

/** The kernel writes space, tab, newline and backslash as three octal digits; other bytes are as they are (UTF-8). */
function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
