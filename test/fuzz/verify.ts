/** A long run of random damage against the proof, by hand: npm run fuzz -- [count] [seed]. */

import { judgeInjured } from '../support/damage.js';
import { peakMemoryBytes } from '../support/peak-memory.js';

const [count = '100000', seed] = process.argv.slice(2);
const started = performance.now();
const valid = await judgeInjured(Number(count), seed === undefined ? undefined : Number(seed));
const seconds = ((performance.now() - started) / 1000).toFixed(1);
const peakMegabytes = Math.round(peakMemoryBytes() / 1e6);
process.stdout.write(
  `${count} damaged images in ${seconds} s, ${valid} valid all the same, at most ${peakMegabytes} MB\n`,
);
