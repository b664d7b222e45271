/** Rate limits per fixed window, as the Hub counts them: API calls and resolver hits apart. */

export interface FakeRateLimit {
  readonly requests: number;
  readonly windowSeconds: number;
  /** How the wait is told: by the Hub's `RateLimit` header (default) or by `Retry-After`. */
  readonly tell?: 'RateLimit' | 'Retry-After';
}

export class FixedWindow {
  readonly #name: string;
  readonly #limit: FakeRateLimit;
  #endsAt = 0;
  #left = 0;

  constructor(name: string, limit: FakeRateLimit) {
    this.#name = name;
    this.#limit = limit;
  }

  /** Counts a request: whether it is over the limit, and the headers of its answer, whatever that is. */
  count(): { readonly isOver: boolean; readonly headers: Readonly<Record<string, string>> } {
    const { requests, windowSeconds, tell = 'RateLimit' } = this.#limit;
    const now = Date.now();
    if (now >= this.#endsAt) {
      this.#endsAt = now + windowSeconds * 1000;
      this.#left = requests;
    }
    this.#left -= 1;
    const isOver = this.#left < 0;
    const seconds = Math.ceil((this.#endsAt - now) / 1000);
    if (tell === 'Retry-After') return { isOver, headers: isOver ? { 'retry-after': String(seconds) } : {} };
    const headers = {
      ratelimit: `"${this.#name}";r=${Math.max(0, this.#left)};t=${seconds}`,
      'ratelimit-policy': `"fixed window";"${this.#name}";q=${requests};w=${windowSeconds}`,
    };
    return { isOver, headers };
  }
}
