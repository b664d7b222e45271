/**
 * Tells systemd how the service is doing (sd_notify(3)): one datagram of VARIABLE=VALUE lines to the socket that
 * `NOTIFY_SOCKET` names. Without that variable, nothing is told and nothing is wrong.
 */

import { messageOf, TmaxError } from '../errors.js';
import { sendDatagram } from '../libc.js';
import type { Environment } from './runtime-directory.js';

export interface ServiceState {
  readonly ready?: true;
  readonly stopping?: true;
  /** The process is alive: to be said more often than the watchdog's interval. */
  readonly alive?: true;
  readonly status?: string;
}

export type Notify = (state: ServiceState) => void;

/** Undefined where nobody wants to be told. Errors of the returned function: EIO the socket can't be reached. */
export function serviceNotifier(environment: Environment): Notify | undefined {
  const socket = environment['NOTIFY_SOCKET'];
  if (socket === undefined || socket === '') return undefined;
  return ({ ready, stopping, alive, status }) => {
    const lines = [];
    if (ready) lines.push('READY=1');
    if (stopping) lines.push('STOPPING=1');
    if (alive) lines.push('WATCHDOG=1');
    // A line feed would start another variable.
    if (status !== undefined) lines.push(`STATUS=${status.replaceAll('\n', ' ')}`);
    try {
      sendDatagram(socket, Buffer.from(lines.join('\n'), 'utf8'));
    } catch (cause) {
      throw new TmaxError('EIO', `systemd can't be told at ${socket}: ${messageOf(cause)}`, {
        cause,
        source: 'daemon',
        level: 'error',
      });
    }
  };
}

/**
 * Within what time systemd wants a sign of life of this process (sd_watchdog_enabled(3)); undefined: it does not. The
 * variables are inherited: they are meant for the process that they name.
 */
export function watchdogMs(environment: Environment, pid: number): number | undefined {
  const { WATCHDOG_USEC: microseconds = '', WATCHDOG_PID: named } = environment;
  if (named !== undefined && named !== String(pid)) return undefined;
  return /^[1-9]\d{0,15}$/.test(microseconds) ? Number(microseconds) / 1000 : undefined;
}
