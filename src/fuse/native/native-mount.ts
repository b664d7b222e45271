import { TmaxError } from '../../errors.js';
import type { FileSystem } from '../../filesystem/contract.js';
import type { MountHandle, MountOptions } from '../mount-handle.js';

export async function mountThroughFuseNative(_: FileSystem, __: MountOptions): Promise<MountHandle> {
  throw new TmaxError('ENOTSUP', 'the fuse-native driver is not there yet; use --driver kernel', { source: 'kernel' });
}
