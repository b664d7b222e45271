/**
 * Passthrough: the kernel reads a cache file by itself, and this process sees no READ (kernel 6.9 and newer, root).
 *
 * Whatever refuses it (no CONFIG_FUSE_PASSTHROUGH, no CAP_SYS_ADMIN, a cache on a file system that is stacked too deep)
 * will refuse it again, so the first refusal switches to relayed reads for good, and is logged once. Inodes that are
 * passed through at that moment stay so until they are closed, as the kernel demands.
 */

import type { Logger } from 'pino';
import { systemErrorCode } from '../../errors.js';
import { ioctl } from '../../libc.js';
import { DeviceIoctl } from '../protocol/constants.js';
import { BackingMap } from '../protocol/structs.js';
import type { Backing } from './open-files.js';

const REASONS: Readonly<Record<string, string>> = {
  EPERM: 'it needs root (CAP_SYS_ADMIN)',
  ENOTTY: 'this kernel does not know it (Linux 6.9 or newer does)',
  EOPNOTSUPP: 'this kernel is built without it (CONFIG_FUSE_PASSTHROUGH)',
  ELOOP: 'the cache lies on a stacked file system such as overlayfs; put it on an ordinary one',
};

/** A descriptor that is certainly not open: asking for it tells whether we may ask at all. */
const NO_DESCRIPTOR = -1;

export class Passthrough implements Backing {
  readonly #device: number;
  readonly #log: Logger;
  readonly #onRefused: () => void;
  #enabled = false;

  /** Off until `enable`. `device` is the descriptor of /dev/fuse; `onRefused` is called when reads are relayed from then on. */
  constructor(device: number, log: Logger, onRefused: () => void) {
    this.#device = device;
    this.#log = log;
    this.#onRefused = onRefused;
  }

  get enabled(): boolean {
    return this.#enabled;
  }

  /** The kernel has agreed at INIT; finds out whether it will also do it for this process. */
  enable(): void {
    this.#enabled = true;
    try {
      this.#ask(NO_DESCRIPTOR);
    } catch (error) {
      if (systemErrorCode(error) !== 'EBADF') this.#giveUp(error);
    }
  }

  open(descriptor: number): number | undefined {
    if (!this.#enabled) return undefined;
    try {
      return this.#ask(descriptor);
    } catch (error) {
      this.#giveUp(error);
      return undefined;
    }
  }

  close(backingId: number): void {
    const argument = Buffer.alloc(4);
    argument.writeInt32LE(backingId);
    try {
      ioctl(this.#device, DeviceIoctl.BACKING_CLOSE, argument);
    } catch (error) {
      // The connection may have ended, and its backing ids with it.
      this.#log.debug({ err: error, backingId }, 'could not close a backing id');
    }
  }

  #ask(descriptor: number): number {
    const argument = Buffer.alloc(BackingMap.size);
    BackingMap.write(argument, 0, { descriptor });
    return ioctl(this.#device, DeviceIoctl.BACKING_OPEN, argument);
  }

  #giveUp(error: unknown): void {
    this.#enabled = false;
    const code = systemErrorCode(error) ?? '';
    const reason = REASONS[code] ?? code;
    this.#log.info({ code }, `reads are relayed through this process, not passed through by the kernel: ${reason}`);
    this.#onRefused();
  }
}
