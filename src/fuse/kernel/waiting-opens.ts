/**
 * The `open` requests that wait for a file system to make their file ready, and what the kernel says of their callers.
 *
 * INTERRUPT names a request and comes at most once for it. From then on the caller is looked at until it has a reason to
 * stop (see signals.ts) or the open has ended. An INTERRUPT may arrive before its own request does, since several
 * threads read from the kernel; it is remembered for a while.
 */

import type { Caller } from '../../filesystem/contract.js';

/** How often the caller of an interrupted request is looked at. */
export const CALLER_CHECK_INTERVAL_MS = 250;
/** How many interrupts of requests not (or no longer) known are remembered; the oldest go first. */
export const MAX_EARLY_INTERRUPTS = 1024;

export interface WaitingOpen {
  /** Aborted when the wait has ended for its caller. */
  readonly signal: AbortSignal;
}

interface Wait {
  readonly caller: Caller;
  readonly controller: AbortController;
  readonly onAbandoned: (reason: AbandonReason) => void;
}

/** `interrupted`: the caller stops waiting; `disconnected`: the mount goes away. */
export type AbandonReason = 'interrupted' | 'disconnected';

export class WaitingOpens {
  readonly #waits = new Map<bigint, Wait>();
  readonly #interrupted = new Set<bigint>();
  readonly #earlyInterrupts = new Set<bigint>();
  readonly #wantsToStop: (tid: number) => boolean;
  #timer: NodeJS.Timeout | undefined;

  /** `wantsToStop` looks at the thread behind a request, as in signals.ts. */
  constructor(wantsToStop: (tid: number) => boolean) {
    this.#wantsToStop = wantsToStop;
  }

  get count(): number {
    return this.#waits.size;
  }

  /** Threads whose `open` waits. */
  get callers(): readonly Caller[] {
    return Array.from(this.#waits.values(), (wait) => wait.caller);
  }

  /**
   * Enters a request. `onAbandoned` is called at most once, and not after `end`; the request has then left this list.
   */
  begin(
    unique: bigint,
    caller: Caller,
    controller: AbortController,
    onAbandoned: (reason: AbandonReason) => void,
  ): void {
    this.#waits.set(unique, { caller, controller, onAbandoned });
    if (this.#earlyInterrupts.delete(unique)) this.#watch(unique);
  }

  /** The request is about to be answered. False if it was abandoned before. */
  end(unique: bigint): boolean {
    this.#interrupted.delete(unique);
    this.#stopLookingWhenIdle();
    return this.#waits.delete(unique);
  }

  /** The kernel says that a signal has come for the caller of this request. */
  interrupt(unique: bigint): void {
    if (this.#waits.has(unique)) {
      this.#watch(unique);
      return;
    }
    this.#earlyInterrupts.add(unique);
    if (this.#earlyInterrupts.size > MAX_EARLY_INTERRUPTS) {
      for (const oldest of this.#earlyInterrupts) {
        this.#earlyInterrupts.delete(oldest);
        break;
      }
    }
  }

  /** Ends every wait: the mount goes away. */
  abandonAll(): void {
    for (const unique of [...this.#waits.keys()]) this.#abandon(unique, 'disconnected');
  }

  #watch(unique: bigint): void {
    this.#interrupted.add(unique);
    this.#timer ??= setInterval(() => this.#lookAtCallers(), CALLER_CHECK_INTERVAL_MS);
    this.#lookAt(unique);
  }

  #lookAtCallers(): void {
    for (const unique of [...this.#interrupted]) this.#lookAt(unique);
  }

  #lookAt(unique: bigint): void {
    const wait = this.#waits.get(unique);
    if (wait !== undefined && this.#wantsToStop(wait.caller.pid)) this.#abandon(unique, 'interrupted');
  }

  #abandon(unique: bigint, reason: AbandonReason): void {
    const wait = this.#waits.get(unique);
    if (wait === undefined) return;
    this.end(unique);
    wait.onAbandoned(reason);
    wait.controller.abort();
  }

  #stopLookingWhenIdle(): void {
    if (this.#interrupted.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
