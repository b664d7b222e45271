/** Threads that destinations work in. */

import { fileURLToPath } from 'node:url';
import type { Piscina } from 'piscina';
import { startPool } from '../thread-pool.js';

/** A thread without work is ended after so long. */
const IDLE_THREADS_MS = 30_000;

/** `file`: a module of this folder, "./put-thread.js". At least `minThreads` (default 0) are kept whatever they do. */
export function startThreads<Job, Outcome>(
  file: string,
  threads: { readonly minThreads?: number; readonly maxThreads: number },
): Piscina<Job, Outcome> {
  return startPool<Job, Outcome>({
    filename: fileURLToPath(new URL(file, import.meta.url)),
    minThreads: 0,
    idleTimeout: IDLE_THREADS_MS,
    ...threads,
  });
}
