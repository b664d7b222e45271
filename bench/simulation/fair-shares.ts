/**
 * How flows share links: max-min fairness, which is what many TCP connections over the same links come near to. No flow can be
 * given more without taking it from one that has as little or less.
 */

import TinyQueue from 'tinyqueue';

export interface Link {
  /** Unique. */
  readonly name: string;
  readonly bytesPerSecond: number;
}

/** Flows that pass over the same links. */
export interface Route {
  readonly links: readonly Link[];
  /** How many there are, at least 1. */
  readonly flows: number;
}

interface Load {
  /** What is not given yet. */
  freeBytesPerSecond: number;
  /** Flows that have not been given their share. */
  flows: number;
  readonly routes: number[];
}

/** Bytes a second of one flow of each route, in their order; none is given more than `mostBytesPerSecond`. */
export function fairShares(routes: readonly Route[], mostBytesPerSecond: number): number[] {
  const shares = routes.map(() => mostBytesPerSecond);
  const isSettled = routes.map(() => false);
  const loads = loadsOf(routes);
  const queue = new TinyQueue(
    [...loads.values()].map((load) => ({ load, share: shareOf(load) })),
    (one, other) => one.share - other.share,
  );
  for (let next = queue.pop(); next !== undefined && next.share < mostBytesPerSecond; next = queue.pop()) {
    const { load } = next;
    if (load.flows === 0) continue;
    const share = shareOf(load);
    // The share of a link only grows while narrower ones are settled: its turn may be later than it was noted.
    if (share > next.share) {
      queue.push({ load, share });
      continue;
    }
    for (const index of load.routes) {
      const route = routes[index];
      if (route === undefined || isSettled[index]) continue;
      isSettled[index] = true;
      shares[index] = share;
      for (const link of route.links) {
        const other = loads.get(link);
        if (other === undefined) continue;
        other.freeBytesPerSecond -= share * route.flows;
        other.flows -= route.flows;
      }
    }
  }
  return shares;
}

function loadsOf(routes: readonly Route[]): Map<Link, Load> {
  const loads = new Map<Link, Load>();
  for (const [index, { links, flows }] of routes.entries()) {
    for (const link of links) {
      const load = loads.get(link) ?? { freeBytesPerSecond: link.bytesPerSecond, flows: 0, routes: [] };
      loads.set(link, load);
      load.flows += flows;
      load.routes.push(index);
    }
  }
  return loads;
}

function shareOf({ freeBytesPerSecond, flows }: Load): number {
  return Math.max(0, freeBytesPerSecond) / flows;
}
