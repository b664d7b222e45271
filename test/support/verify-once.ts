/**
 * Run as a process of its own to measure a proof: verify-once <path> <level> [threads] prints its outcome, time and peak
 * memory. Without a number of threads it is proven in the main thread.
 */

import { statSync } from 'node:fs';
import * as v from 'valibot';
import { VERIFY_LEVELS } from '../../src/verify/verdict.js';
import { Verifier } from '../../src/verify/verifier.js';
import { verifyImage } from '../../src/verify/verify.js';
import { peakMemoryBytes } from './peak-memory.js';

const [path, level, threads] = v.parse(
  v.tuple([v.string(), v.picklist(VERIFY_LEVELS), v.optional(v.pipe(v.string(), v.transform(Number)))]),
  process.argv.slice(2),
);
const expectation = { sizeBytes: statSync(path).size, sha256: '', computedSha256: '' };
const started = performance.now();
const { outcome } = await prove();
const elapsedMs = Math.round(performance.now() - started);
process.stdout.write(JSON.stringify({ outcome, elapsedMs, peakBytes: peakMemoryBytes() }));

async function prove() {
  if (threads === undefined) return await verifyImage(path, expectation, level);
  const verifier = new Verifier({ threads });
  try {
    return await verifier.verify(path, expectation, level);
  } finally {
    await verifier.close();
  }
}
