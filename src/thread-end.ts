/**
 * Ends threads only while none of them is loading native code.
 *
 * A thread that is ended while a native module initialises in it takes the whole process with it: what the module tells Node then
 * fails, and it aborts. So who loads enters a gate that is shared with the thread that has started it, and who ends closes that gate,
 * and waits until nobody is inside.
 *
 * Each thread has a gate for those that it starts, and has inherited that of its own starter. It waits at the second alone,
 * never at the first: so no thread waits for itself.
 */

import { setTimeout as delay } from 'node:timers/promises';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';

/** The key under which a thread finds its starter's gate. */
const GATE = 'tmaxfs: native code is loading';
/** Places in a gate: how many are ending threads, and how many threads are loading. */
const ENDING = 0;
const LOADING = 1;
/** How often a waiting thread looks; loading takes some milliseconds. */
const LOOK_MS = 5;
/** Longer than anything takes to load. */
const MAX_LOAD_MS = 5_000;

const inherited = getEnvironmentData(GATE);
const startersGate = inherited instanceof SharedArrayBuffer ? new Int32Array(inherited) : undefined;
const ownGate = new Int32Array(new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT));
setEnvironmentData(GATE, ownGate.buffer);

/** Runs `load`, during which this thread is not ended by `endThreads`. Synchronous; waits while threads are being ended. */
export function loadNative<Result>(load: () => Result): Result {
  if (startersGate === undefined) return load();
  for (;;) {
    for (let ending = Atomics.load(startersGate, ENDING); ending > 0; ending = Atomics.load(startersGate, ENDING)) {
      Atomics.wait(startersGate, ENDING, ending, LOOK_MS);
    }
    Atomics.add(startersGate, LOADING, 1);
    if (Atomics.load(startersGate, ENDING) === 0) break;
    Atomics.sub(startersGate, LOADING, 1);
  }
  try {
    return load();
  } finally {
    Atomics.sub(startersGate, LOADING, 1);
  }
}

/** Runs `end`, which ends threads of this one. Errors: those of `end`. */
export async function endThreads<Result>(end: () => Promise<Result>): Promise<Result> {
  Atomics.add(ownGate, ENDING, 1);
  try {
    const startedMs = performance.now();
    while (Atomics.load(ownGate, LOADING) > 0 && performance.now() - startedMs < MAX_LOAD_MS) await delay(LOOK_MS);
    return await end();
  } finally {
    Atomics.sub(ownGate, ENDING, 1);
    Atomics.notify(ownGate, ENDING);
  }
}
