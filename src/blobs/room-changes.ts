/** Waiting for room: for what this process is told of, and now and then for what other daemons may have done. */

/** What may still give room. */
export interface Hope {
  /** Fetches under way, anywhere: they end by themselves. */
  readonly fetches: boolean;
  /** Blobs that are held open, anywhere. */
  readonly leases: boolean;
  /** Some of that is another daemon's, whose changes nobody tells us of. */
  readonly elsewhere: boolean;
}

export interface Patience {
  /** True once it is worth another try; false where there is no hope, or no patience left. Settles also when aborted. */
  wait(signal: AbortSignal, hope: Hope): Promise<boolean>;
}

/** How often it is tried whether other daemons have made room; the more wait for it, the less often each one tries. */
const POLL_MS = 250;
const POLL_MS_PER_WAITER = 25;
/** As long as a fetch may last at most: one of another daemon that lasts longer has been stopped. */
const MAX_FETCH_MS = 7_200_000;

export class RoomChanges {
  readonly #waiting = new Set<() => void>();
  #count = 0;

  /** How often something has changed that may have made room. */
  get count(): number {
    return this.#count;
  }

  tell(): void {
    this.#count += 1;
    for (const tell of [...this.#waiting]) tell();
  }

  /** For one who wants room. `leaseMs`: how long after the last change it is waited for leases alone to end. */
  patience(leaseMs: number): Patience {
    let isFetching: boolean | undefined;
    let endsAtMs = 0;
    return {
      wait: async (signal, hope) => {
        if (!hope.fetches && !hope.leases) return false;
        if (hope.fetches !== isFetching) {
          isFetching = hope.fetches;
          endsAtMs = performance.now() + (hope.fetches ? MAX_FETCH_MS : leaseMs);
        }
        const leftMs = endsAtMs - performance.now();
        if (leftMs <= 0) return false;
        const pollMs = hope.elsewhere ? POLL_MS + POLL_MS_PER_WAITER * this.#waiting.size : leftMs;
        const hasChanged = await this.#change(signal, Math.min(leftMs, pollMs));
        if (hasChanged) isFetching = undefined;
        return hasChanged || pollMs < leftMs;
      },
    };
  }

  /** False where nothing has changed in that time. */
  #change(signal: AbortSignal, timeoutMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const settle = (hasChanged: boolean) => {
        clearTimeout(timer);
        signal.removeEventListener('abort', onChange);
        this.#waiting.delete(onChange);
        resolve(hasChanged);
      };
      const onChange = () => settle(true);
      const timer = setTimeout(() => settle(false), timeoutMs);
      this.#waiting.add(onChange);
      signal.addEventListener('abort', onChange, { once: true });
      if (signal.aborted) onChange();
    });
  }
}
