/** Mounts a file system by one of the two drivers. All that the daemon needs of this room. */

import { messageOf, TmaxError } from '../errors.js';
import type { FileSystem } from '../filesystem/contract.js';
import { loadLibc } from '../libc.js';
import { mountThroughKernel } from './kernel/kernel-mount.js';
import type { MountHandle, MountOptions } from './mount-handle.js';
import { prepareMountpoint } from './mounts.js';

export type { DriverName, DriverStatistics, MountHandle, MountOptions } from './mount-handle.js';

/** Checks the mount point (see `prepareMountpoint`), mounts, and resolves once the tree can be used. */
export async function mountFileSystem(fileSystem: FileSystem, options: MountOptions): Promise<MountHandle> {
  await prepareMountpoint(options.mountpoint, options.log);
  if (options.driver === 'fuse-native') return mountThroughLibrary(fileSystem, options);
  try {
    loadLibc();
  } catch (error) {
    const reason = `the kernel driver can't run here, since koffi can't be loaded (${messageOf(error)})`;
    if (options.driver === 'kernel') {
      throw new TmaxError('ENOTSUP', `${reason}; install it (npm install koffi) or use --driver fuse-native`, {
        cause: error,
        source: 'kernel',
      });
    }
    options.log.warn(`${reason}; using fuse-native`);
    return mountThroughLibrary(fileSystem, options);
  }
  return mountThroughKernel(fileSystem, options);
}

async function mountThroughLibrary(fileSystem: FileSystem, options: MountOptions): Promise<MountHandle> {
  const { mountThroughFuseNative } = await import('./native/native-mount.js');
  return mountThroughFuseNative(fileSystem, options);
}
