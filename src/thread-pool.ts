/**
 * Pools of threads, by piscina, which is loaded with the first of them: a daemon starts without any, and an open that finds its
 * image on disk needs none.
 */

import { createRequire } from 'node:module';
import type { Piscina } from 'piscina';

type Options = NonNullable<ConstructorParameters<typeof Piscina>[0]>;

/** `options`: as piscina has them, `filename` the path of the thread's module. */
export function startPool<Job, Outcome>(options: Options): Piscina<Job, Outcome> {
  const { Piscina: Pool }: typeof import('piscina') = createRequire(import.meta.url)('piscina');
  return new Pool<Job, Outcome>({
    // A thread without work waits in its event loop, where timers and connections are served and where it can be ended.
    atomics: 'disabled',
    recordTiming: false,
    ...options,
  });
}
