/** Gets an opened /dev/fuse that is mounted somewhere: by mount(2) for root, by fusermount3 for everybody else. */

import { closeSync, openSync } from 'node:fs';
import { messageOf, systemErrorCode, TmaxError } from '../../errors.js';
import { MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, mount } from '../../libc.js';
import { DEVICE_REMEDY, mountAsUser } from '../fusermount.js';
import { MOUNT_TYPE } from '../mount-table.js';
import { MAX_READ_BYTES } from '../protocol/negotiation.js';

const DEVICE = '/dev/fuse';
/** The type of the root of the mount, in octal: a directory. */
const ROOT_MODE = '40000';

export interface AttachOptions {
  readonly mountpoint: string;
  readonly fsName: string;
  readonly allowOther: boolean;
  readonly noExec?: boolean;
}

/** Mounts and returns the descriptor of /dev/fuse, which the caller owns. Nothing is served yet. */
export async function attach(options: AttachOptions): Promise<number> {
  const [uid, gid] = [process.geteuid?.() ?? 0, process.getegid?.() ?? 0];
  const common = ['default_permissions', `max_read=${MAX_READ_BYTES}`, ...(options.allowOther ? ['allow_other'] : [])];
  if (uid !== 0) {
    const [, subtype = ''] = MOUNT_TYPE.split('.');
    const ours = [
      'ro',
      'nosuid',
      'nodev',
      ...(options.noExec ? ['noexec'] : []),
      `fsname=${options.fsName}`,
      `subtype=${subtype}`,
    ];
    return mountAsUser(options.mountpoint, [...ours, ...common]);
  }
  const device = openDevice();
  try {
    const data = [`fd=${device}`, `rootmode=${ROOT_MODE}`, `user_id=${uid}`, `group_id=${gid}`, ...common].join(',');
    const flags = MS_RDONLY | MS_NOSUID | MS_NODEV | (options.noExec ? MS_NOEXEC : 0);
    mount(options.fsName, options.mountpoint, MOUNT_TYPE, flags, data);
    return device;
  } catch (error) {
    closeSync(device);
    throw mountFailed(options.mountpoint, error);
  }
}

function openDevice(): number {
  try {
    return openSync(DEVICE, 'r+');
  } catch (error) {
    const code = systemErrorCode(error);
    const errno = code === 'ENOENT' || code === 'EACCES' ? code : 'EPERM';
    throw new TmaxError(errno, `can't open ${DEVICE} (${code}). ${DEVICE_REMEDY}`, { cause: error, source: 'kernel' });
  }
}

function mountFailed(mountpoint: string, error: unknown): TmaxError {
  switch (systemErrorCode(error)) {
    case 'EPERM':
      return new TmaxError(
        'EPERM',
        `can't mount on ${mountpoint}: this root lacks CAP_SYS_ADMIN. Run outside the container, or give it the capability (--cap-add SYS_ADMIN)`,
        { cause: error, source: 'kernel' },
      );
    case 'ENODEV':
      return new TmaxError('ENOTSUP', `can't mount on ${mountpoint}: this kernel has no FUSE. ${DEVICE_REMEDY}`, {
        cause: error,
        source: 'kernel',
      });
    default:
      return new TmaxError('EIO', `can't mount on ${mountpoint}: ${messageOf(error)}`, {
        cause: error,
        source: 'kernel',
        level: 'error',
      });
  }
}
