/** What a driver is asked for, and what it gives. */

import type { Logger } from 'pino';

export type DriverName = 'kernel' | 'fuse-native';

export interface MountOptions {
  /** Absolute, free of symbolic links. */
  readonly mountpoint: string;
  /** Shown as the source of the mount by df and mount. */
  readonly fsName: string;
  /** Whether users other than the mounting one may use the mount. */
  readonly allowOther: boolean;
  /** Nothing on the mount can be executed. */
  readonly noExec?: boolean;
  /** `auto`: the kernel driver, or fuse-native where that can't run. */
  readonly driver: 'auto' | DriverName;
  /** `auto`: where the kernel allows it. */
  readonly passthrough: 'auto' | 'off';
  /** Threads that read requests and serve relayed reads (kernel driver); one is enough with passthrough. */
  readonly readThreads: number;
  readonly log: Logger;
}

export interface DriverStatistics {
  /** Requests so far, by the name of their opcode. */
  readonly requests: Readonly<Record<string, number>>;
  /** Opens that wait for their file to be ready. */
  readonly waitingOpens: number;
  readonly openHandles: number;
  readonly openDirectories: number;
  /** Files that the kernel reads by itself. */
  readonly backingIds: number;
}

export interface MountHandle {
  readonly driver: DriverName;
  /** Whether files opened now are read by the kernel itself. */
  readonly passthrough: boolean;
  /** Resolves once the kernel has ended the connection, whoever unmounted it, and all has been given back. */
  readonly ended: Promise<void>;
  statistics(): DriverStatistics;
  /**
   * Takes the mount away. Not lazy: EBUSY, naming the holders, while anything is open. Lazy: opens that still wait end
   * with ENOTCONN; open files work on until they are closed or `drainTimeoutMs` is over, then the connection is ended
   * (files that are passed through work even after that). Errors: EBUSY; EPERM; ETIMEDOUT the mount is gone from the tree,
   * but the connection can't be ended (an ordinary user, where /sys/fs/fuse/connections is not mounted): threads still
   * block in the kernel then, and the process ends only by `exitNow` of libc.ts.
   */
  unmount(options: { readonly lazy: boolean; readonly drainTimeoutMs: number }): Promise<void>;
}
