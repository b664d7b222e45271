/**
 * Tells systemd how the service is doing (sd_notify(3)): one datagram of VARIABLE=VALUE lines to the socket that
 * `NOTIFY_SOCKET` names. Without that variable, nothing is told and nothing is wrong.
 */

import { messageOf, TmaxError } from '../errors.js';
import { sendDatagram } from '../libc.js';

export type Notify = (state: { readonly ready?: true; readonly stopping?: true; readonly status?: string }) => void;

/** Errors of the returned function: EIO where the socket is named and can't be reached. */
export function serviceNotifier(environment: Readonly<Record<string, string | undefined>>): Notify {
  const socket = environment['NOTIFY_SOCKET'];
  if (socket === undefined || socket === '') return () => undefined;
  return ({ ready, stopping, status }) => {
    const lines = [];
    if (ready) lines.push('READY=1');
    if (stopping) lines.push('STOPPING=1');
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
