/**
 * A scrape, in the text format of Prometheus 0.0.4. `prom-client` writes it, and is loaded by the first scrape: a daemon
 * that nobody scrapes does without the megabytes that it takes.
 */

import type { Metric, Registry } from 'prom-client';
import { FAMILIES, type Family, type MetricParts } from './families.js';
import type { Observed } from './tallies.js';

/** A value as `prom-client` takes it from a metric. */
interface Sample {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  /** Where it is not the family's own. */
  readonly metricName?: string;
}

export interface Scrape {
  readonly contentType: string;
  readonly text: string;
}

export class Exposition {
  readonly #look: () => MetricParts;
  #registry: Promise<Registry> | undefined;
  /** Of the scrape under way: its values are taken in one turn. */
  #samples = new Map<string, readonly Sample[]>();

  constructor(look: () => MetricParts) {
    this.#look = look;
  }

  async scrape(): Promise<Scrape> {
    this.#registry ??= this.#load();
    const registry = await this.#registry;
    const parts = this.#look();
    this.#samples = new Map(FAMILIES.map((family) => [family.name, samplesOf(family, parts)]));
    return { contentType: registry.contentType, text: await registry.metrics() };
  }

  async #load(): Promise<Registry> {
    const { default: prometheus } = await import('prom-client');
    const registry = new prometheus.Registry();
    for (const { name, help, type } of FAMILIES) {
      const get = async () => ({ name, help, type, aggregator: 'sum', values: this.#samples.get(name) ?? [] });
      // A registry asks nothing else of a metric. Those of the library count by themselves, which here the tallies do.
      registry.registerMetric({ name, get } as unknown as Metric);
    }
    return registry;
  }
}

function samplesOf(family: Family, parts: MetricParts): readonly Sample[] {
  if (family.type !== 'histogram') return [...family.values(parts)];
  const { bounds, series } = family.tally(parts);
  return [...series].flatMap((observed) => bucketsOf(family.name, bounds, observed));
}

/** Buckets are cumulative, as the format wants them. */
function bucketsOf(name: string, bounds: readonly number[], { labels, counts, sum }: Observed): readonly Sample[] {
  let count = 0;
  const buckets = counts.map((inBucket, index): Sample => {
    count += inBucket;
    return { metricName: `${name}_bucket`, labels: { ...labels, le: bounds[index] ?? '+Inf' }, value: count };
  });
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ];
}
