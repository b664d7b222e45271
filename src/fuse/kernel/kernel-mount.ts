/** The kernel driver: mounts, speaks the FUSE protocol on /dev/fuse, unmounts. */

import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { TmaxError } from '../../errors.js';
import type { FileSystem } from '../../filesystem/contract.js';
import type { DriverStatistics, MountHandle, MountOptions } from '../mount-handle.js';
import { topMountAt } from '../mount-table.js';
import { unmount } from '../unmount.js';
import { abortConnection } from './abort.js';
import { attach } from './attach.js';
import { Connection } from './connection.js';

/** How long the reading threads may take to end once the connection has been aborted. */
const ABORT_LIMIT_MS = 5000;
/** Readahead of relayed reads; the kernel's default of 128 KiB would make sequential reads small. Only root may set it. */
const READ_AHEAD_KIB = 1024;

/** Mounts and starts to serve. Errors: see attach.ts and connection.ts. */
export async function mountThroughKernel(fileSystem: FileSystem, options: MountOptions): Promise<MountHandle> {
  const { mountpoint, log } = options;
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
    if (!connection.passthrough) await raiseReadAhead(deviceNumber, log);
    log.info({ mountpoint, protocol: `7.${minor}`, passthrough: connection.passthrough }, 'mounted');
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
  /** "major:minor" of the mounted file system; the minor number is that of the FUSE connection. */
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

  async unmount(options: { readonly lazy: boolean; readonly drainTimeoutMs: number }): Promise<void> {
    const mounted = topMountAt(this.#mountpoint);
    if (mounted !== undefined && mounted.device === this.#deviceNumber) {
      const knownHolders = this.#connection.session.waitingCallers.map(({ pid }) => ({
        pid,
        command: 'waiting',
        holds: 'an open that is not answered yet',
      }));
      await unmount(this.#mountpoint, { lazy: options.lazy, knownHolders });
    }
    this.#connection.session.abandonWaitingOpens();
    if (await this.#endsWithin(options.drainTimeoutMs)) return;
    await this.#abort();
    if (await this.#endsWithin(ABORT_LIMIT_MS)) return;
    throw stuck(this.#mountpoint, undefined);
  }

  /** Files are still open, on the detached mount or in another mount namespace. */
  async #abort(): Promise<void> {
    this.#log.warn(
      { mountpoint: this.#mountpoint },
      'files are still open on the mount that was taken away: ending it',
    );
    try {
      await abortConnection(this.#deviceNumber?.split(':')[1] ?? '');
    } catch (error) {
      throw stuck(this.#mountpoint, error);
    }
  }

  async #endsWithin(limitMs: number): Promise<boolean> {
    const given = new AbortController();
    const limit = delay(limitMs, false, { signal: given.signal }).catch(() => false);
    try {
      return await Promise.race([this.ended.then(() => true), limit]);
    } finally {
      given.abort();
    }
  }
}

function stuck(mountpoint: string, cause: unknown): TmaxError {
  return new TmaxError(
    'EBUSY',
    `the mount on ${mountpoint} is gone from the tree, but files on it are open and this user can't end the connection (is /sys/fs/fuse/connections mounted?); it ends with this process`,
    { cause, source: 'kernel', level: 'error' },
  );
}

async function raiseReadAhead(deviceNumber: string | undefined, log: Logger): Promise<void> {
  if (deviceNumber === undefined || process.geteuid?.() !== 0) return;
  try {
    await writeFile(`/sys/class/bdi/${deviceNumber}/read_ahead_kb`, String(READ_AHEAD_KIB));
  } catch (error) {
    log.debug({ err: error }, 'could not raise the readahead of the mount');
  }
}
