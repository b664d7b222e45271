/**
 * A second request for what the first is silent about. Whoever brings something first goes on alone; the other is called
 * off. So a connection that hangs (a dead path, a stuck edge of a CDN) costs seconds, not its whole idle timeout.
 *
 * At most two run at a time, and both begin at the same place: neither has brought anything since the second began.
 */

import { aborted } from './failure.js';

export interface Contestant {
  /** Aborted when the other has won, or everything is called off. */
  readonly signal: AbortSignal;
  /** The request goes out now: silence counts from here. */
  sent(): void;
  /** Something came. Errors: EINTR the other has won, and what came is not to be used. */
  heard(): void;
  /** Silence does not count until the promise, which never rejects, has resolved: it is the receiver who needs time. */
  hold(taken: Promise<void>): void;
}

export interface RaceOptions {
  readonly silenceMs: number;
  readonly signal: AbortSignal;
  /** Told when a second request begins. */
  readonly onSecond: () => void;
}

/** Errors: those of the one that went on, or of the last that was left. */
export async function raceIfSilent(
  run: (contestant: Contestant) => Promise<void>,
  options: RaceOptions,
): Promise<void> {
  await new Race(run, options).result;
}

class Race {
  readonly result: Promise<void>;
  readonly #run: (contestant: Contestant) => Promise<void>;
  readonly #options: RaceOptions;
  readonly #running = new Map<object, AbortController>();
  #timer: NodeJS.Timeout | undefined;
  #verdict: NodeJS.Immediate | undefined;
  #isHeld = false;
  #isOver = false;
  #settle: { resolve(): void; reject(error: unknown): void } = { resolve: () => {}, reject: () => {} };

  constructor(run: (contestant: Contestant) => Promise<void>, options: RaceOptions) {
    this.#run = run;
    this.#options = options;
    this.result = new Promise<void>((resolve, reject) => {
      this.#settle = { resolve, reject };
    }).finally(() => {
      this.#stopListening();
      clearImmediate(this.#verdict);
      this.#isOver = true;
    });
    this.#enter();
  }

  #enter(): void {
    const controller = new AbortController();
    const contestant: Contestant = {
      signal: AbortSignal.any([this.#options.signal, controller.signal]),
      sent: () => this.#listen(),
      heard: () => {
        if (!this.#running.has(contestant)) throw aborted();
        if (this.#running.size > 1) this.#callOffAllBut(contestant);
        if (this.#timer === undefined) this.#listen();
        else this.#timer.refresh();
      },
      hold: (taken) => {
        this.#stopListening();
        this.#isHeld = true;
        void taken.then(() => {
          this.#isHeld = false;
          this.#listen();
        });
      },
    };
    this.#running.set(contestant, controller);
    this.#run(contestant).then(
      () => {
        if (!this.#running.has(contestant)) return;
        // The other may still be on its way, and must bring nothing once what is missing is asked for anew.
        this.#callOffAllBut(contestant);
        this.#settle.resolve();
      },
      (error: unknown) => {
        // One that was called off has left already.
        if (!this.#running.delete(contestant)) return;
        if (this.#running.size === 0) this.#settle.reject(error);
      },
    );
  }

  #callOffAllBut(winner: Contestant): void {
    for (const [contestant, controller] of this.#running) {
      if (contestant === winner) continue;
      this.#running.delete(contestant);
      controller.abort();
    }
  }

  #listen(): void {
    this.#stopListening();
    if (this.#running.size > 1 || this.#isOver) return;
    this.#timer = setTimeout(() => {
      this.#stopListening();
      // A thread that was busy itself finds what has come meanwhile only after its timers: that is no silence.
      this.#verdict = setImmediate(() => {
        if (this.#timer !== undefined || this.#running.size !== 1 || this.#isHeld) return;
        this.#options.onSecond();
        this.#enter();
      });
    }, this.#options.silenceMs);
  }

  #stopListening(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
