/**
 * Keeps the resident memory of a daemon, which mostly idles, near what it uses. V8 and glibc keep what starting and fetching
 * have left over, and give it back only when more is allocated, which an idle daemon never does.
 */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { returnAllocationsFrom } from '../libc.js';

/** Of what a socket is read into. Below it, glibc keeps what is freed, in an arena for each thread. */
const SOCKET_BUFFER_BYTES = 64 * 1024;

/** To be called before anything large is allocated. */
export function keepMemorySmall(): void {
  // While the catalog is read, V8 would make the young generation 48 MB large, and keep it for the life of the daemon.
  setFlagsFromString('--semi-space-growth-factor=1');
  returnAllocationsFrom(SOCKET_BUFFER_BYTES);
}

/** Collects all garbage now; takes some tens of milliseconds. */
export function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  setFlagsFromString('--no-expose-gc');
  if (typeof collect === 'function') collect();
}
