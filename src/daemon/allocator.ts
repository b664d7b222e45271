/**
 * Keeps a daemon's memory near what it uses. To be called before anything large is allocated.
 */

import { setFlagsFromString } from 'node:v8';
import { returnAllocationsFrom } from '../libc.js';

/** Of what a socket is read into. Below it, glibc keeps what is freed, in an arena for each thread. */
const SOCKET_BUFFER_BYTES = 64 * 1024;

export function keepMemorySmall(): void {
  // While the catalog is read, V8 would make the young generation 48 MB large, and keep it for the life of the daemon.
  setFlagsFromString('--semi-space-growth-factor=1');
  returnAllocationsFrom(SOCKET_BUFFER_BYTES);
}
