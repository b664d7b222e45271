/**
 * A process that is killed at any moment leaves a cache in which nothing is wrong, nothing is over the limits, and nothing has
 * to be fetched twice. Thousands of rounds: npm run fuzz:crash.
 */

import test from 'ava';
import { crashRounds } from '../support/crash-rounds.js';
import { anySeed } from '../support/random.js';
import { temporaryFolder } from '../support/temporary.js';

/** Of 200 rounds in all: the runner wants to hear of a test now and then. */
const ROUNDS = 25;

for (const part of [1, 2, 3, 4, 5, 6, 7, 8]) {
  test.serial(`${ROUNDS} kills of a busy cache leave nothing wrong, part ${part}`, async (t) => {
    const seed = anySeed();
    t.log(`seed ${seed}`);
    const summary = await crashRounds(temporaryFolder(t), ROUNDS, seed);
    t.log(JSON.stringify(summary));
    t.is(summary.rounds, ROUNDS);
  });
}

test.serial(`${ROUNDS} kills of two busy caches on one directory leave nothing wrong`, async (t) => {
  const seed = anySeed();
  t.log(`seed ${seed}`);
  const summary = await crashRounds(temporaryFolder(t), ROUNDS, seed, 2);
  t.log(JSON.stringify(summary));
  t.is(summary.rounds, ROUNDS);
});
