/** The descriptors that the kernel knows as file handles: duplicates with high numbers. */

import { closeSync, fstatSync, openSync } from 'node:fs';
import { TmaxError } from '../../errors.js';
import { duplicateDescriptor } from '../../libc.js';
import type { Descriptors } from './open-files.js';

/** Handles lie from here up, so that a process that takes the connection over can give its files the same numbers. */
export const LOWEST_HANDLE = 4096;

const REMEDY = 'raise the limit of open files (ulimit -n, LimitNOFILE= of the service)';

export const HIGH_DESCRIPTORS: Descriptors = {
  duplicate(descriptor) {
    try {
      return duplicateDescriptor(descriptor, LOWEST_HANDLE);
    } catch (error) {
      const message = `no file descriptor is left for an open file; ${REMEDY}`;
      throw new TmaxError('EIO', message, { cause: error, source: 'kernel', level: 'error' });
    }
  },
  identity(descriptor) {
    const { dev, ino } = fstatSync(descriptor);
    return `${dev}:${ino}`;
  },
  close: closeSync,
};

/** Finds out before anything is mounted whether this process may have descriptors with such numbers. Errors: EINVAL. */
export function checkDescriptorLimit(): void {
  const descriptor = openSync('/dev/null', 'r');
  try {
    closeSync(duplicateDescriptor(descriptor, LOWEST_HANDLE));
  } catch (error) {
    const message = `this process may not have more than ${LOWEST_HANDLE} open files, which is too few; ${REMEDY}`;
    throw new TmaxError('EINVAL', message, { cause: error, source: 'kernel' });
  } finally {
    closeSync(descriptor);
  }
}
