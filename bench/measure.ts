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
export async function measure(bench: Bench, rounds: number, say: (words: string) => void): Promise<BenchResult> {
  say(`${bench.name}: setting up`);
  const stage = await bench.setup();
  try {
    const figures = new Map<Contestant, Figures[]>(stage.contestants.map((contestant) => [contestant, []]));
    for (let round = 1; round <= rounds; round += 1) {
      for (const [contestant, runs] of figures) {
        const run = await contestant.run();
        runs.push(run);
        say(`${bench.name}: round ${round} of ${rounds}: ${contestant.name}: ${run.seconds.toFixed(3)} s`);
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
  const seconds = sorted(runs.map((run) => run.seconds));
  const processor = sorted(runs.flatMap(({ processorSeconds }) => processorSeconds ?? []));
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

function sorted(values: readonly number[]): readonly number[] {
  return [...values].sort((a, b) => a - b);
}

function median(ascending: readonly number[]): number {
  const upper = ascending[Math.floor(ascending.length / 2)] ?? Number.NaN;
  const lower = ascending[Math.floor((ascending.length - 1) / 2)] ?? Number.NaN;
  return (lower + upper) / 2;
}

function judge(goal: Goal, measured: readonly Measured[]): JudgedGoal {
  const secondsOf = (name: string): number => {
    const found = measured.find(({ contestant }) => contestant === name);
    if (found === undefined) throw new Error(`a goal names the contestant "${name}", which there is not`);
    return found.medianSeconds;
  };
  const ratio = secondsOf(goal.contestant) / secondsOf(goal.reference);
  return { ...goal, ratio, isMet: ratio <= goal.atMost };
}
