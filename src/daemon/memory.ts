/**
 * Keeps the resident memory of a daemon that mostly idles near what it needs. V8 gives back what starting has left over
 * only when more is allocated, which an idle daemon never does.
 */

import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Collects all garbage now; takes some tens of milliseconds. */
export function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  setFlagsFromString('--no-expose-gc');
  if (typeof collect === 'function') collect();
}
