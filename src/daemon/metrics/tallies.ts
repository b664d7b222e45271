/**
 * What has been counted and timed since the daemon started, a series for each combination of labels. Plain numbers, so that
 * counting costs an open next to nothing, and a daemon that nobody scrapes needs no library for it.
 *
 * Labels are of bounded sets (an outcome, an errno, a source, a level), never a task or a blob; `MAX_SERIES` makes sure.
 */

export type Labels = Readonly<Record<string, string>>;

/** Of one tally; further combinations of labels are not counted. */
const MAX_SERIES = 200;

export interface Counted {
  readonly labels: Labels;
  readonly value: number;
}

export class CountTally {
  readonly #series = new Map<string, { readonly labels: Labels; value: number }>();

  add(labels: Labels, by = 1): void {
    const series = seriesOf(this.#series, labels, () => ({ labels, value: 0 }));
    if (series !== undefined) series.value += by;
  }

  get series(): Iterable<Counted> {
    return this.#series.values();
  }

  get total(): number {
    let total = 0;
    for (const { value } of this.#series.values()) total += value;
    return total;
  }
}

export interface Observed {
  readonly labels: Labels;
  /** For each of the bounds, values up to it and above the one before; last, those above all. */
  readonly counts: readonly number[];
  readonly sum: number;
}

export class HistogramTally {
  /** Upper ends, included, ascending. */
  readonly bounds: readonly number[];
  readonly #series = new Map<string, { readonly labels: Labels; readonly counts: number[]; sum: number }>();

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
  }

  /** Shows a series from the start, so that its first value is seen as a change from 0. */
  prepare(labels: Labels): void {
    this.#of(labels);
  }

  observe(labels: Labels, value: number): void {
    const series = this.#of(labels);
    if (series === undefined) return;
    let index = 0;
    while (index < this.bounds.length && value > (this.bounds[index] ?? 0)) index += 1;
    series.counts[index] = (series.counts[index] ?? 0) + 1;
    series.sum += value;
  }

  get series(): Iterable<Observed> {
    return this.#series.values();
  }

  #of(labels: Labels) {
    const counts = () => new Array<number>(this.bounds.length + 1).fill(0);
    return seriesOf(this.#series, labels, () => ({ labels, counts: counts(), sum: 0 }));
  }
}

function seriesOf<Series>(all: Map<string, Series>, labels: Labels, create: () => Series): Series | undefined {
  let key = '';
  for (const name in labels) key += `${labels[name]}\n`;
  const known = all.get(key);
  if (known !== undefined || all.size >= MAX_SERIES) return known;
  const series = create();
  all.set(key, series);
  return series;
}

/** How many of the latest values percentiles are taken of. */
const RECENT_VALUES = 1024;

/** The latest `RECENT_VALUES` of what is measured again and again. */
export class RecentValues {
  readonly #values = new Float64Array(RECENT_VALUES);
  #count = 0;

  add(value: number): void {
    this.#values[this.#count % RECENT_VALUES] = value;
    this.#count += 1;
  }

  /** The least value that at least `share` (0 to 1) of them do not exceed, for each of the shares; null where there is none yet. */
  percentiles(...shares: readonly number[]): readonly (number | null)[] {
    const sorted = this.#values.slice(0, Math.min(this.#count, RECENT_VALUES)).sort();
    return shares.map((share) => sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? null);
  }
}
