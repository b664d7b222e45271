/** Asks a daemon over HTTP, and reads the text format of Prometheus. */

import { once } from 'node:events';
import { type RequestOptions, request } from 'node:http';
import { text } from 'node:stream/consumers';

/** The body of what is answered with 200, over a port or a socket (`socketPath`). */
export async function getText(options: RequestOptions): Promise<string> {
  const sent = request({ agent: false, ...options }).end();
  const [response] = await once(sent, 'response');
  const body = await text(response);
  if (response.statusCode !== 200) throw new Error(`${response.statusCode}: ${body}`);
  return body;
}

export class Scrape {
  readonly #values = new Map<string, number>();
  readonly names = new Set<string>();

  constructor(body: string) {
    for (const line of body.split('\n').filter((one) => one !== '' && !one.startsWith('#'))) {
      const [, series = '', name = '', value = ''] = /^(([a-z_]+)(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
      if (name === '') throw new Error(`no sample: ${line}`);
      this.#values.set(series, Number(value));
      this.names.add(name);
    }
  }

  /** Names of the labels that series of a metric have. */
  labelsOf(name: string): readonly string[] {
    const series = [...this.#values.keys()].filter((one) => one.startsWith(`${name}{`));
    return [
      ...new Set(series.flatMap((one) => Array.from(one.matchAll(/[{,]([a-z_]+)="/g), ([, label = '']) => label))),
    ];
  }

  /** Of a series as it is written, as `tmaxfs_fetches{phase="queued"}`. */
  value(series: string): number | undefined {
    return this.#values.get(series);
  }
}
