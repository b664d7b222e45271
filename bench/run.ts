/**
 * `npm run bench -- [names] [--rounds N] [--json FILE]`: runs the benches, prints a table each, and exits with 1 where a
 * goal was missed. To add a bench: write it beside this file (see bench.ts) and list it below.
 */

import { writeFileSync } from 'node:fs';
import { availableParallelism, cpus, release } from 'node:os';
import { Command, InvalidArgumentError } from 'commander';
import { formatTable } from '../src/cli/table.js';
import { formatBytes } from '../src/daemon/amount.js';
import type { Bench } from './bench.js';
import { cacheDirectoryBenches } from './cache-directory.js';
import { fetchBenches } from './fetch.js';
import { kernelBenches } from './kernel.js';
import { type BenchResult, formatSeconds, type JudgedGoal, measure } from './measure.js';
import { verification } from './verification.js';

const BENCHES: readonly Bench[] = [verification, ...kernelBenches, ...fetchBenches, ...cacheDirectoryBenches];
const DEFAULT_ROUNDS = 5;

const command = new Command('bench')
  .argument('[names...]', `which benches: ${BENCHES.map(({ name }) => name).join(', ')} (default: all)`)
  .option('--rounds <number>', 'how often each contestant runs', wholeNumber, DEFAULT_ROUNDS)
  .option('--json <file>', 'also write all figures there')
  .action(async (names: string[], options: { rounds: number; json?: string }) => {
    const unknown = names.find((name) => !BENCHES.some((bench) => bench.name === name));
    if (unknown !== undefined) command.error(`there is no bench "${unknown}"`);
    await run(
      BENCHES.filter(({ name }) => names.length === 0 || names.includes(name)),
      options,
    );
  });
await command.parseAsync();

async function run(benches: readonly Bench[], { rounds, json }: { rounds: number; json?: string }): Promise<void> {
  const results: BenchResult[] = [];
  for (const bench of benches) {
    const result = await measure(bench, rounds, (words) => process.stderr.write(`${words}\n`));
    results.push(result);
    process.stdout.write(`\n${bench.name}: ${bench.description}\n${describe(result)}\n`);
  }
  const machine = {
    processor: cpus()[0]?.model ?? 'unknown',
    cores: availableParallelism(),
    kernel: release(),
    node: process.version,
  };
  const document = { measuredAt: new Date().toISOString(), machine, results };
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(document, null, 2)}\n`);
  if (results.some(({ goals }) => goals.some(({ isMet }) => !isMet))) process.exitCode = 1;
}

function describe({ rounds, subject, measured, goals }: BenchResult): string {
  const fastest = Math.min(...measured.map(({ medianSeconds }) => medianSeconds));
  const rows = measured.map(({ contestant, medianSeconds, leastSeconds, mostSeconds, processorSeconds, peakBytes }) => [
    contestant,
    formatSeconds(medianSeconds),
    formatSeconds(leastSeconds),
    formatSeconds(mostSeconds),
    // An idle daemon takes no time at all.
    fastest === 0 ? '' : (medianSeconds / fastest).toFixed(2),
    processorSeconds === null ? '' : formatSeconds(processorSeconds),
    peakBytes === null ? '' : formatBytes(peakBytes),
  ]);
  return [
    Object.entries(subject)
      .map(([name, value]) => `${name}: ${value}`)
      .join(', '),
    formatTable([`median of ${rounds}`, 'seconds', 'least', 'most', 'ratio', 'processor', 'peak memory'], rows),
    ...goals.map(describeGoal),
    '',
  ].join('\n');
}

function describeGoal({ contestant, reference, of = 'seconds', atMost, ratio, isMet }: JudgedGoal): string {
  const met = isMet ? 'met' : 'MISSED';
  const thing = of === 'seconds' ? 'time' : 'memory';
  if (reference !== undefined) {
    return `goal ${met}: ${contestant} takes ${ratio.toFixed(2)} times the ${thing} of ${reference} (at most ${atMost.toFixed(2)})`;
  }
  const format = of === 'seconds' ? formatSeconds : formatBytes;
  return `goal ${met}: ${contestant} takes ${format(ratio)} (at most ${format(atMost)})`;
}

function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('a number from 1 to 9999 is expected');
  return Number(text);
}
