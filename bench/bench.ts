/**
 * What a bench is. One file of this folder exports one, and `run.ts` lists it. Contestants do the same work in different
 * ways and are run in turns, so that whatever else the machine does meanwhile hits them alike; only ratios are goals.
 */

/** What one run of a contestant took. */
export interface Figures {
  readonly seconds: number;
  /** Of all its threads together, where that is known. */
  readonly processorSeconds?: number;
  /** Largest memory of the process that did it, where that is a process of its own. */
  readonly peakBytes?: number;
}

export interface Contestant {
  readonly name: string;
  /** Throws where the work was not done as it should be: a wrong answer has no speed. */
  run(): Promise<Figures>;
}

/** The median of `contestant` must be at most `atMost` times that of `reference`; without one, at most `atMost` itself. */
export interface Goal {
  readonly contestant: string;
  readonly reference?: string;
  /** What is compared; default `seconds`. */
  readonly of?: keyof Figures;
  readonly atMost: number;
}

/** What `setup` has made ready. */
export interface Stage {
  /** Distinct names, in the order of the table. */
  readonly contestants: readonly Contestant[];
  readonly goals: readonly Goal[];
  /** What was measured on, for the report: sizes, counts, digests. */
  readonly subject: Readonly<Record<string, string | number>>;
  teardown(): Promise<void>;
}

export interface Bench {
  readonly name: string;
  /** One sentence; says what the seconds are of, where that is not the whole run. */
  readonly description: string;
  /** Fewer rounds than asked for, where one takes minutes. */
  readonly maxRounds?: number;
  setup(): Promise<Stage>;
}
