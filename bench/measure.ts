/** Runs one bench: its contestants in turns for some rounds, medians at the end. */

import type { Bench, Contestant, Figures, Goal, Stage } from './bench.js';

export interface Measured {
  readonly contestant: string;
  readonly medianSeconds: number;
  readonly leastSeconds: number;
  readonly mostSeconds: number;
  /** Median too. */
  readonly processorSeconds: number | null;
  readonly peakBytes: number | null;
}

export interface JudgedGoal extends Goal {
  /** To the reference; without one, the figure itself. */
  readonly ratio: number;
  readonly isMet: boolean;
}

export interface BenchResult {
  readonly bench: string;
  readonly rounds: number;
  readonly subject: Stage['subject'];
  readonly measured: readonly Measured[];
  readonly goals: readonly JudgedGoal[];
}

/** `say` is told what is going on. Errors: whatever a contestant throws; the bench is torn down all the same. */
export async function measure(bench: Bench, askedRounds: number, say: (words: string) => void): Promise<BenchResult> {
  say(`${bench.name}: setting up`);
  const rounds = Math.min(askedRounds, bench.maxRounds ?? askedRounds);
  const stage = await bench.setup();
  try {
    const figures = new Map<Contestant, Figures[]>(stage.contestants.map((contestant) => [contestant, []]));
    for (let round = 1; round <= rounds; round += 1) {
      for (const [contestant, runs] of figures) {
        const run = await contestant.run();
        runs.push(run);
        say(`${bench.name}: round ${round} of ${rounds}: ${contestant.name}: ${formatSeconds(run.seconds)}`);
      }
    }
    const measured = [...figures].map(([{ name }, runs]) => summarize(name, runs));
    const goals = stage.goals.map((goal) => judge(goal, measured));
    return { bench: bench.name, rounds, subject: stage.subject, measured, goals };
  } finally {
    await stage.teardown();
  }
}

function summarize(contestant: string, runs: readonly Figures[]): Measured {
  const seconds = ascending(runs.map((run) => run.seconds));
  const processor = ascending(runs.flatMap(({ processorSeconds }) => processorSeconds ?? []));
  const peaks = runs.flatMap(({ peakBytes }) => peakBytes ?? []);
  return {
    contestant,
    medianSeconds: median(seconds),
    leastSeconds: seconds[0] ?? Number.NaN,
    mostSeconds: seconds.at(-1) ?? Number.NaN,
    processorSeconds: processor.length === 0 ? null : median(processor),
    peakBytes: peaks.length === 0 ? null : Math.max(...peaks),
  };
}

function ascending(values: readonly number[]): readonly number[] {
  return [...values].sort((a, b) => a - b);
}

function median(sorted: readonly number[]): number {
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const lower = sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN;
  return (lower + upper) / 2;
}

function judge(goal: Goal, measured: readonly Measured[]): JudgedGoal {
  const figureOf = (name: string): number => {
    const found = measured.find(({ contestant }) => contestant === name);
    if (found === undefined) throw new Error(`a goal names the contestant "${name}", which there is not`);
    return goal.of === 'peakBytes' ? (found.peakBytes ?? Number.NaN) : found.medianSeconds;
  };
  const ratio = figureOf(goal.contestant) / (goal.reference === undefined ? 1 : figureOf(goal.reference));
  return { ...goal, ratio, isMet: ratio <= goal.atMost };
}

/** "2.21 us", "13.4 ms", "3.02 s": three significant digits. */
export function formatSeconds(seconds: number): string {
  const [factor, unit] = seconds < 1e-3 ? [1e6, 'us'] : seconds < 1 ? [1e3, 'ms'] : [1, 's'];
  return `${(seconds * factor).toPrecision(3)} ${unit}`;
}
