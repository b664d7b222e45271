/** Time, and transfers over shared links: bytes flow evenly at the rates of `fairShares`, which change when a transfer begins or ends. */

import TinyQueue from 'tinyqueue';
import { fairShares, type Link } from './fair-shares.js';

export interface Transfer {
  readonly sizeBytes: number;
  readonly links: readonly Link[];
  /** So many transfers of that size that begin, and so end, together; default 1. */
  readonly copies?: number;
}

interface Timer {
  readonly atSeconds: number;
  readonly action: () => void;
}

/** Transfers over the same links: at every moment each goes as fast as the others. */
interface BusyRoute {
  readonly links: readonly Link[];
  /** Transfers that are on their way. */
  flows: number;
  /** What each would have by now had it begun with the first. */
  servedBytes: number;
  bytesPerSecond: number;
  /** By when they end. */
  readonly ends: TinyQueue<End>;
}

interface End {
  readonly atServedBytes: number;
  readonly flows: number;
  readonly onEnd: () => void;
}

/** What rounding may leave of a transfer. */
const TOLERANCE_BYTES = 1e-3;

export class Network {
  #nowSeconds = 0;
  #areSharesStale = false;
  readonly #mostBytesPerSecond: number;
  readonly #routes = new Map<string, BusyRoute>();
  readonly #timers = new TinyQueue<Timer>([], (one, other) => one.atSeconds - other.atSeconds);

  /** No transfer is faster than `mostBytesPerSecond`, whatever the links give. */
  constructor(mostBytesPerSecond: number = Number.POSITIVE_INFINITY) {
    this.#mostBytesPerSecond = mostBytesPerSecond;
  }

  get nowSeconds(): number {
    return this.#nowSeconds;
  }

  at(seconds: number, action: () => void): void {
    this.#timers.push({ atSeconds: seconds, action });
  }

  transfer({ sizeBytes, links, copies = 1 }: Transfer, onEnd: () => void): void {
    const key = links.map(({ name }) => name).join(' ');
    const route: BusyRoute = this.#routes.get(key) ?? {
      links,
      flows: 0,
      servedBytes: 0,
      bytesPerSecond: 0,
      ends: new TinyQueue<End>([], (one, other) => one.atServedBytes - other.atServedBytes),
    };
    this.#routes.set(key, route);
    route.flows += copies;
    route.ends.push({ atServedBytes: route.servedBytes + sizeBytes, flows: copies, onEnd });
    this.#areSharesStale = true;
  }

  /** Lets time go on until nothing is left to happen. */
  run(): void {
    for (;;) {
      if (this.#areSharesStale) this.#share();
      const next = this.#nextSeconds();
      if (next === Number.POSITIVE_INFINITY) return;
      this.#advance(next);
    }
  }

  #share(): void {
    const routes = [...this.#routes.values()];
    const shares = fairShares(routes, this.#mostBytesPerSecond);
    for (const [index, route] of routes.entries()) route.bytesPerSecond = shares[index] ?? 0;
    this.#areSharesStale = false;
  }

  #nextSeconds(): number {
    let next = this.#timers.peek()?.atSeconds ?? Number.POSITIVE_INFINITY;
    for (const { ends, servedBytes, bytesPerSecond } of this.#routes.values()) {
      const end = ends.peek();
      if (end === undefined) continue;
      next = Math.min(next, this.#nowSeconds + (end.atServedBytes - servedBytes) / bytesPerSecond);
    }
    return next;
  }

  #advance(toSeconds: number): void {
    const elapsedSeconds = Math.max(0, toSeconds - this.#nowSeconds);
    this.#nowSeconds = Math.max(toSeconds, this.#nowSeconds);
    const happening: (() => void)[] = [];
    for (const [key, route] of this.#routes) {
      route.servedBytes += route.bytesPerSecond * elapsedSeconds;
      for (let end = route.ends.peek(); end !== undefined; end = route.ends.peek()) {
        if (end.atServedBytes > route.servedBytes + TOLERANCE_BYTES) break;
        route.ends.pop();
        route.flows -= end.flows;
        happening.push(end.onEnd);
        this.#areSharesStale = true;
      }
      if (route.flows === 0) this.#routes.delete(key);
    }
    for (let timer = this.#timers.peek(); timer !== undefined; timer = this.#timers.peek()) {
      if (timer.atSeconds > this.#nowSeconds) break;
      this.#timers.pop();
      happening.push(timer.action);
    }
    for (const action of happening) action();
  }
}
