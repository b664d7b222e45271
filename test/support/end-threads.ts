/**
 * Run as a process of its own: end-threads <rounds> starts threads that load native code, and ends them at any moment of that.
 * Prints how many it has ended.
 */

import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { endThreads } from '../../src/thread-end.js';

const THREADS = 4;
const LONGEST_START_MS = 60;

const rounds = Number(process.argv[2]);
for (let round = 0; round < rounds; round += 1) {
  const threads = Array.from({ length: THREADS }, () => new Worker(new URL('./native-thread.js', import.meta.url)));
  await delay((LONGEST_START_MS * round) / rounds);
  await endThreads(() => Promise.all(threads.map((thread) => thread.terminate())));
}
process.stdout.write(`${rounds * THREADS}`);
