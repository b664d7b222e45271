/**
 * Run as a process of its own, whose time and memory are nobody else's: refuse-bomb <compressor> <path> tries to inflate the
 * block in the file as metadata again and again. Prints how often that was refused, and what it took of processor and memory.
 */

import { readFileSync } from 'node:fs';
import * as v from 'valibot';
import { openDecompressor } from '../../src/verify/squashfs/decompress.js';
import { peakMemoryBytes } from './peak-memory.js';

const ROUNDS = 10;
const METADATA_BYTES = 8192;

const [compressor, path] = v.parse(
  v.tuple([v.picklist(['gzip', 'xz', 'lz4', 'zstd']), v.string()]),
  process.argv.slice(2),
);
const bomb = readFileSync(path);
const decompress = await openDecompressor(compressor);
// The first use loads things.
const first = refused();
const beforeBytes = peakMemoryBytes();
const startedAt = process.cpuUsage();
let refusals = first ? 1 : 0;
for (let round = 1; round < ROUNDS; round += 1) if (refused()) refusals += 1;
const { user, system } = process.cpuUsage(startedAt);
const grownBytes = peakMemoryBytes() - beforeBytes;
process.stdout.write(JSON.stringify({ everyRound: refusals === ROUNDS, cpuMs: (user + system) / 1000, grownBytes }));

function refused(): boolean {
  try {
    decompress(bomb, METADATA_BYTES);
    return false;
  } catch {
    return true;
  }
}
