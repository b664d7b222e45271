/** Run as a process of its own to measure a proof: verify-once <path> <level> prints its outcome, time and peak memory. */

import { readFileSync, statSync } from 'node:fs';
import * as v from 'valibot';
import { VERIFY_LEVELS } from '../../src/verify/verdict.js';
import { verifyImage } from '../../src/verify/verify.js';

const [path, level] = v.parse(v.tuple([v.string(), v.picklist(VERIFY_LEVELS)]), process.argv.slice(2));
const started = performance.now();
const { outcome } = await verifyImage(path, { sizeBytes: statSync(path).size, sha256: '', computedSha256: '' }, level);
const elapsedMs = Math.round(performance.now() - started);
// Not getrusage: its maximum counts what the parent had in memory when it forked.
const peakKilobytes = Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]);
process.stdout.write(JSON.stringify({ outcome, elapsedMs, peakBytes: peakKilobytes * 1024 }));
