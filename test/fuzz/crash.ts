/** Many kills of a busy cache, by hand: npm run fuzz:crash -- [rounds] [seed] [processes at a time]. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crashRounds } from '../support/crash-rounds.js';
import { anySeed } from '../support/random.js';

const [rounds = '2000', given, processes = '1'] = process.argv.slice(2);
const seed = given === undefined ? anySeed() : Number(given);
const folder = mkdtempSync(join(tmpdir(), 'tmaxfs-crash-'));
process.stdout.write(`seed ${seed}, in ${folder}, which stays where something is wrong\n`);
const started = performance.now();
const { killedAtStart, resumed, temporaries } = await crashRounds(folder, Number(rounds), seed, Number(processes));
rmSync(folder, { recursive: true });
const seconds = ((performance.now() - started) / 1000).toFixed(0);
process.stdout.write(
  `${rounds} kills in ${seconds} s, nothing wrong: ${killedAtStart} during a start, ${resumed} partial files gone on from, ` +
    `${temporaries} temporaries left and removed\n`,
);
