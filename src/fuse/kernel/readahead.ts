/**
 * How far the kernel reads ahead of a program on this mount. By default 128 KiB, which for a relayed file means eight
 * requests for what one can carry; root may ask for more. Files that are passed through have their disk's own.
 *
 * Source: Linux's Documentation/ABI/testing/sysfs-class-bdi.
 */

import { writeFileSync } from 'node:fs';
import type { Logger } from 'pino';
import { messageOf } from '../../errors.js';
import { MAX_READ_BYTES } from '../protocol/negotiation.js';

/** One request is being answered while the program takes what the one before it brought. */
const READAHEAD_KIB = (2 * MAX_READ_BYTES) / 1024;

/** `device` is "major:minor" of the mounted file system. Without the right to it (or to /sys) it stays as it is. */
export function raiseReadahead(device: string | undefined, log: Logger): void {
  if (process.geteuid?.() !== 0 || device === undefined) return;
  try {
    writeFileSync(`/sys/class/bdi/${device}/read_ahead_kb`, String(READAHEAD_KIB));
  } catch (error) {
    log.debug({ reason: messageOf(error) }, 'the kernel reads ahead by its default');
  }
}
