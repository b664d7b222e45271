/** The kernel driver: mounts, speaks the FUSE protocol on /dev/fuse, unmounts. */

import { stat } from 'node:fs/promises';
import type { Logger } from 'pino';
import type { FileSystem } from '../../filesystem/contract.js';
import type { DriverStatistics, MountHandle, MountOptions } from '../mount-handle.js';
import { topMountAt } from '../mount-table.js';
import { takeAway } from '../take-away.js';
import { attach } from './attach.js';
import { Connection } from './connection.js';
import { checkDescriptorLimit } from './high-descriptors.js';
import { raiseReadahead } from './readahead.js';

/** Mounts and starts to serve. Errors: EINVAL too few open files are allowed; those of attach.ts and connection.ts. */
export async function mountThroughKernel(fileSystem: FileSystem, options: MountOptions): Promise<MountHandle> {
  const { mountpoint, log } = options;
  checkDescriptorLimit();
  const device = await attach(options);
  const deviceNumber = topMountAt(mountpoint)?.device;
  const connection = new Connection({
    device,
    fileSystem,
    readThreads: options.readThreads,
    passthrough: options.passthrough === 'auto',
    log,
  });
  const mount = new KernelMount(connection, mountpoint, deviceNumber, log);
  try {
    const { minor } = await connection.ready;
    raiseReadahead(deviceNumber, log);
    // Shows that the tree can be read, and lets the kernel learn now that STATX is not answered here (see session.ts): if it
    // first asked after this process has gone, even an fstat of an open file would fail.
    await stat(mountpoint);
    log.debug(
      { mountpoint, protocol: `7.${minor}`, passthrough: connection.passthrough },
      'the kernel and the driver agree',
    );
    return mount;
  } catch (error) {
    await mount.unmount({ lazy: true, drainTimeoutMs: 0 });
    throw error;
  }
}

class KernelMount implements MountHandle {
  readonly driver = 'kernel';
  readonly ended: Promise<void>;
  readonly #connection: Connection;
  readonly #mountpoint: string;
  readonly #deviceNumber: string | undefined;
  readonly #log: Logger;

  constructor(connection: Connection, mountpoint: string, deviceNumber: string | undefined, log: Logger) {
    this.#connection = connection;
    this.#mountpoint = mountpoint;
    this.#deviceNumber = deviceNumber;
    this.#log = log;
    this.ended = connection.ended.then(() => log.info({ mountpoint }, 'unmounted'));
  }

  get passthrough(): boolean {
    return this.#connection.passthrough;
  }

  statistics(): DriverStatistics {
    const { session, requests } = this.#connection;
    return {
      requests,
      waitingOpens: session.waitingOpenCount,
      openHandles: session.openHandleCount,
      openDirectories: session.openDirectoryCount,
      backingIds: session.backingIdCount,
    };
  }

  unmount(options: { readonly lazy: boolean; readonly drainTimeoutMs: number }): Promise<void> {
    const { session } = this.#connection;
    return takeAway(
      {
        mountpoint: this.#mountpoint,
        deviceNumber: this.#deviceNumber,
        ended: this.ended,
        waitingHolders: session.waitingCallers.map(({ pid }) => ({
          pid,
          command: 'waiting',
          holds: 'an unanswered open',
        })),
        openFileCount: () => session.openHandleCount,
        abandonWaitingOpens: () => session.abandonWaitingOpens(),
        log: this.#log,
      },
      options,
    );
  }
}
