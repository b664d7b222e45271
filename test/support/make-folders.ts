/** A thread that makes one folder after another, each at the same moment as other threads do. */

import { join } from 'node:path';
import { workerData } from 'node:worker_threads';
import { makeFolder } from '../../src/folders.js';

const { root, arrived, threads, rounds } = workerData as {
  readonly root: string;
  readonly arrived: SharedArrayBuffer;
  readonly threads: number;
  readonly rounds: number;
};
const count = new Int32Array(arrived);

for (let round = 1; round <= rounds; round += 1) {
  meet(threads * round);
  makeFolder(join(root, String(round), 'b', 'c', 'd'));
}

/** Returns once so many have come here in all. */
function meet(all: number): void {
  Atomics.add(count, 0, 1);
  Atomics.notify(count, 0);
  for (let seen = Atomics.load(count, 0); seen < all; seen = Atomics.load(count, 0)) Atomics.wait(count, 0, seen);
}
