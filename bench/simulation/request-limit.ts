/** The Hub's limit of requests: so many in each window of fixed length, in the order in which they were asked for. */

export interface RequestLimitSettings {
  readonly requests: number;
  readonly windowSeconds: number;
}

export class RequestLimit {
  readonly #settings: RequestLimitSettings;
  #window = 0;
  #usedRequests = 0;
  #totalRequests = 0;

  constructor(settings: RequestLimitSettings) {
    this.#settings = settings;
  }

  get totalRequests(): number {
    return this.#totalRequests;
  }

  /** When the last of so many requests is answered, if all are asked for now. Later calls come after these. */
  grant(nowSeconds: number, requests: number): number {
    const { requests: most, windowSeconds } = this.#settings;
    const window = Math.floor(nowSeconds / windowSeconds);
    if (window > this.#window) {
      this.#window = window;
      this.#usedRequests = 0;
    }
    this.#totalRequests += requests;
    this.#usedRequests += requests;
    const furtherWindows = Math.ceil(this.#usedRequests / most) - 1;
    this.#window += furtherWindows;
    this.#usedRequests -= furtherWindows * most;
    return Math.max(nowSeconds, this.#window * windowSeconds);
  }
}
