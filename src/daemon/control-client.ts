/** Asks a daemon for a document or an action: by its mount point, through the control socket that the mount's root names. */

import { lstatSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'undici';
import * as v from 'valibot';
import { messageOf, systemErrorCode, TmaxError } from '../errors.js';
import { MOUNT_TYPE, topMountAt } from '../fuse/mount-table.js';
import { readExtendedAttribute } from '../libc.js';
import { CONTROL_ATTRIBUTE, STATUS_ATTRIBUTE } from './runtime-directory.js';

/** A daemon that does not answer in this time is reported as hung. */
const ANSWER_TIMEOUT_MS = 10_000;
/** How a connection ends that the daemon had no place for, and after how long the next is tried. */
const CUT_OFF = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE', 'EAGAIN']);
const BUSY_PAUSE_MS = 250;
/** The largest document is the coverage of a pool with every task unresolvable. */
const MAX_ANSWER_BYTES = 256 * 1024 * 1024;

/**
 * The document at `path` (as "/status?x=y") of the daemon behind `mountpoint`, parsed from JSON. Where others are let in,
 * they are told as well.
 * Errors: ENOTCONN no daemon there; EACCES the daemon is another user's; ETIMEDOUT it does not answer; EIO it answers badly.
 */
export async function askDaemon(mountpoint: string, path: string): Promise<unknown> {
  const deadline = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
  const socketPath = await controlSocketOf(mountpoint);
  try {
    return await askSocket(mountpoint, socketPath, path, deadline);
  } catch (error) {
    if (!(error instanceof TmaxError) || error.errno !== 'EACCES') throw error;
    const publicPath = await socketNamedBy(mountpoint, STATUS_ATTRIBUTE).catch(() => undefined);
    if (publicPath === undefined) throw error;
    return askSocket(mountpoint, publicPath, path, deadline);
  }
}

/** Tries again while the daemon has too many clients, and so cuts some off. */
async function askSocket(
  mountpoint: string,
  socketPath: string,
  path: string,
  deadline: AbortSignal,
): Promise<unknown> {
  for (;;) {
    const client = new Client('http://tmaxfs', {
      socketPath,
      headersTimeout: ANSWER_TIMEOUT_MS,
      bodyTimeout: ANSWER_TIMEOUT_MS,
      maxResponseSize: MAX_ANSWER_BYTES,
    });
    try {
      const { statusCode, body } = await client.request({ method: 'GET', path, signal: deadline });
      const answer: unknown = await body.json();
      if (statusCode === 200) return answer;
      throw new TmaxError('EIO', `the daemon of ${mountpoint} answered ${statusCode}: ${JSON.stringify(answer)}`, {
        source: 'control',
      });
    } catch (cause) {
      if (cause instanceof TmaxError) throw cause;
      if (deadline.aborted) throw hung(mountpoint);
      if (!CUT_OFF.has(systemErrorCode(cause) ?? '')) throw socketError(cause, mountpoint, socketPath);
    } finally {
      await client.destroy();
    }
    await delay(BUSY_PAUSE_MS);
  }
}

const endShape = v.union([v.object({ result: v.looseObject({}) }), v.object({ error: v.string(), errno: v.string() })]);

/**
 * Has the daemon behind `mountpoint` do something, and returns its result. `onLine` gets each line that it says meanwhile.
 * Going away (by the signal, or by ending the process) ends the action.
 * Errors: as `askDaemon`; EIO what the daemon says went wrong; EINTR the signal.
 */
export async function commandDaemon(
  mountpoint: string,
  path: string,
  body: unknown,
  { onLine, signal }: { readonly onLine?: (line: unknown) => void; readonly signal?: AbortSignal } = {},
): Promise<unknown> {
  const socketPath = await controlSocketOf(mountpoint);
  // An action may be silent for long: who waits sees its progress, and can end it.
  const client = new Client('http://tmaxfs', { socketPath, headersTimeout: ANSWER_TIMEOUT_MS, bodyTimeout: 0 });
  try {
    const { body: stream } = await client.request({
      method: 'POST',
      path,
      body: JSON.stringify(body),
      ...(signal === undefined ? {} : { signal }),
    });
    for await (const text of linesOf(stream)) {
      const line: unknown = JSON.parse(text);
      const end = v.safeParse(endShape, line);
      if (!end.success) {
        onLine?.(line);
        continue;
      }
      if ('result' in end.output) return end.output.result;
      throw new TmaxError('EIO', end.output.error, { source: 'control' });
    }
    throw new TmaxError('EIO', `the daemon of ${mountpoint} ended before it was done; see its log`, {
      source: 'control',
    });
  } catch (cause) {
    if (signal?.aborted) throw new TmaxError('EINTR', 'called off', { cause, source: 'control' });
    if (cause instanceof TmaxError) throw cause;
    throw socketError(cause, mountpoint, socketPath);
  } finally {
    await client.destroy();
  }
}

async function* linesOf(stream: AsyncIterable<unknown>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of stream) {
    if (!(chunk instanceof Uint8Array)) continue;
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    yield* lines;
  }
}

/** Errors: as `askDaemon`. */
async function controlSocketOf(mountpoint: string): Promise<string> {
  try {
    return await socketNamedBy(mountpoint, CONTROL_ATTRIBUTE);
  } catch (cause) {
    if (cause instanceof TmaxError) throw cause;
    const code = systemErrorCode(cause);
    if (code === 'EACCES' || code === 'EPERM') {
      const message = `${mountpoint} belongs to another user, who did not allow others in; ask as that user (${asItsUser(mountpoint)})`;
      throw new TmaxError('EACCES', message, { cause, source: 'control' });
    }
    const isDead = topMountAt(mountpoint)?.type === MOUNT_TYPE;
    const message = isDead
      ? `the daemon of ${mountpoint} has ended without unmounting; "tmaxfs mount ${mountpoint}" mounts anew, "tmaxfs unmount --dead ${mountpoint}" takes away what it left`
      : `no tmaxfs daemon serves ${mountpoint}; start one with "tmaxfs mount"`;
    throw new TmaxError('ENOTCONN', message, { cause, source: 'control' });
  }
}

/** Errors: those of getxattr(2); ETIMEDOUT. */
async function socketNamedBy(mountpoint: string, attribute: string): Promise<string> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(hung(mountpoint)), ANSWER_TIMEOUT_MS);
  });
  try {
    // On another thread, and with a deadline: a hung daemon would hold the call for ever.
    const value = await Promise.race([readExtendedAttribute(mountpoint, `user.tmaxfs.${attribute}`), tooLate]);
    return value.toString('utf8');
  } finally {
    clearTimeout(timer);
  }
}

/** The command line that may look at the mount: not even root may look at a user's own. */
function asItsUser(mountpoint: string): string {
  const owner = topMountAt(mountpoint)?.superOptions.find((option) => option.startsWith('user_id='));
  return `sudo -u '#${owner?.slice('user_id='.length) ?? 'USER'}' tmaxfs ...`;
}

/** Where a group may give orders too, it is named by its number. */
function groupOf(socketPath: string): string {
  try {
    const { mode, gid } = lstatSync(socketPath);
    return (mode & 0o020) === 0 ? '' : `, members of group ${gid}`;
  } catch {
    // It lies where this user can't even look.
    return '';
  }
}

function socketError(cause: unknown, mountpoint: string, socketPath: string): TmaxError {
  const code = systemErrorCode(cause);
  if (code === 'EACCES') {
    const who = `root${groupOf(socketPath)} and who mounted it`;
    const message = `the daemon of ${mountpoint} obeys only ${who}; ask as that user (${asItsUser(mountpoint)})`;
    return new TmaxError('EACCES', message, { cause, source: 'control' });
  }
  if (code === 'ENOENT' || code === 'ECONNREFUSED') {
    return new TmaxError(
      'ENOTCONN',
      `the daemon of ${mountpoint} does not listen at ${socketPath}; is it in another container or namespace?`,
      {
        cause,
        source: 'control',
      },
    );
  }
  if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT') return hung(mountpoint);
  const message = `asking the daemon of ${mountpoint} failed: ${messageOf(cause)}`;
  return new TmaxError('EIO', message, { cause, source: 'control' });
}

function hung(mountpoint: string): TmaxError {
  return new TmaxError(
    'ETIMEDOUT',
    `the daemon of ${mountpoint} did not answer within ${ANSWER_TIMEOUT_MS / 1000} s; see its log`,
    {
      source: 'control',
    },
  );
}
