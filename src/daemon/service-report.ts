/**
 * What the service manager is told of a daemon, from its start to its end: what it waits for, that it is ready, what it is
 * doing, and that it lives. The sign of life comes from the main thread's own loop: where that hangs, none comes, and the
 * manager starts the daemon anew.
 */

import type { Logger } from 'pino';
import { messageOf } from '../errors.js';
import type { Environment } from './runtime-directory.js';
import { type Notify, type ServiceState, serviceNotifier, watchdogMs } from './service-notification.js';

/** How old what `systemctl status` shows may be. */
const STATUS_INTERVAL_MS = 5_000;
/** Of the watchdog's interval: two signs of life may be late, or lost. */
const WATCHDOG_SHARE = 1 / 3;

export class ServiceReport {
  /** Undefined where there is no manager. */
  readonly #notify: Notify | undefined;
  readonly #watchdogMs: number | undefined;
  #log: Logger | undefined;
  #isStarting = true;
  #timer: NodeJS.Timeout | undefined;
  #lastStatus: string | undefined;

  constructor(environment: Environment) {
    this.#notify = serviceNotifier(environment);
    this.#watchdogMs = watchdogMs(environment, process.pid);
  }

  /** From now on, what can't be told is logged. */
  logTo(log: Logger): void {
    this.#log = log;
  }

  /** What keeps it from being ready, in words; without effect once it is. */
  waitsFor(words: string): void {
    if (this.#isStarting) this.#tell({ status: `starting: ${words}` });
  }

  /** `describe` says in a line what it is doing; asked again and again until it stops. */
  ready(describe: () => string): void {
    this.#isStarting = false;
    if (this.#notify === undefined) return;
    this.#lastStatus = describe();
    this.#tell({ ready: true, status: this.#lastStatus });
    const intervalMs = Math.min(STATUS_INTERVAL_MS, (this.#watchdogMs ?? Number.POSITIVE_INFINITY) * WATCHDOG_SHARE);
    this.#timer = setInterval(() => this.#tick(describe()), intervalMs).unref();
  }

  /** Why it did not get ready. */
  failed(words: string): void {
    this.#tell({ status: `could not start: ${words}` });
  }

  stopping(): void {
    this.#isStarting = false;
    this.end();
    this.#tell({ stopping: true, status: 'unmounting' });
  }

  /** Tells nothing any more by itself. */
  end(): void {
    clearInterval(this.#timer);
  }

  #tick(status: string): void {
    const isNew = status !== this.#lastStatus;
    this.#lastStatus = status;
    if (this.#watchdogMs === undefined && !isNew) return;
    this.#tell({ ...(this.#watchdogMs === undefined ? {} : { alive: true }), ...(isNew ? { status } : {}) });
  }

  /** A service manager that can't be told is no reason to leave a mount without its daemon. */
  #tell(state: ServiceState): void {
    try {
      this.#notify?.(state);
    } catch (error) {
      this.#log?.error({ reason: messageOf(error) }, 'the service manager could not be told');
    }
  }
}
