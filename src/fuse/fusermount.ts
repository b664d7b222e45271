/**
 * fusermount3 (or the older fusermount): the set-uid program by which an ordinary user mounts and unmounts.
 *
 * On mounting it hands over the opened /dev/fuse through the socket that `_FUSE_COMMFD` names. Both refuse in English
 * sentences only, which are passed on; the ones with a known remedy get it appended.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync } from 'node:fs';
import { systemErrorCode, TmaxError } from '../errors.js';
import { receiveDescriptor, socketPair } from '../libc.js';

const PROGRAMS = ['fusermount3', 'fusermount'] as const;
/** fusermount only makes a few system calls; longer means that something is stuck. */
const TIMEOUT_MS = 30_000;
const MAX_COMPLAINT_LENGTH = 4096;
/** The descriptor that the child finds the socket under: its standard input, which it has no other use for. */
const CHILD_SOCKET = 0;

/** Mounts on `mountpoint` with FUSE options as "fsname=x"; returns the descriptor of /dev/fuse, owned by the caller. */
export async function mountAsUser(mountpoint: string, options: readonly string[]): Promise<number> {
  const [ours, theirs] = socketPair();
  try {
    const outcome = await runFirstFound(['-o', options.map(escapeOption).join(','), '--', mountpoint], theirs);
    if (!outcome.ok) throw mountRefused(mountpoint, outcome.complaint);
    const descriptor = receiveDescriptor(ours);
    if (descriptor === undefined) throw mountRefused(mountpoint, `${outcome.program} sent no descriptor`);
    return descriptor;
  } finally {
    closeSync(ours);
    closeSync(theirs);
  }
}

/** Unmounts. Errors: EBUSY in use, EPERM not the user's own mount: its table of mounts has other users' ones not at all. */
export async function unmountAsUser(mountpoint: string, options: { readonly lazy: boolean }): Promise<void> {
  const outcome = await runFirstFound(['-u', ...(options.lazy ? ['-z'] : []), '--', mountpoint], undefined);
  if (outcome.ok) return;
  const errno = /busy/i.test(outcome.complaint) ? 'EBUSY' : 'EPERM';
  throw new TmaxError(errno, `can't unmount ${mountpoint}: ${outcome.complaint}`, { source: 'kernel' });
}

type Outcome = { readonly ok: true; readonly program: string } | { readonly ok: false; readonly complaint: string };

async function runFirstFound(args: readonly string[], socket: number | undefined): Promise<Outcome> {
  for (const program of PROGRAMS) {
    const outcome = await run(program, args, socket);
    if (outcome !== undefined) return outcome;
  }
  throw new TmaxError(
    'ENOENT',
    'neither fusermount3 nor fusermount is on the PATH, and only they (or root) can mount; install the package fuse3',
    { source: 'kernel' },
  );
}

/** Undefined if there is no such program. */
async function run(program: string, args: readonly string[], socket: number | undefined): Promise<Outcome | undefined> {
  const child = spawn(program, args, {
    // The user's environment is handed on unread: it holds the PATH on which the program is found.
    env: { ...process.env, _FUSE_COMMFD: String(CHILD_SOCKET) },
    stdio: [socket ?? 'ignore', 'ignore', 'pipe'],
  });
  // The option of spawn leaves its timer running where there is no such program.
  const timer = setTimeout(() => child.kill('SIGKILL'), TIMEOUT_MS);
  let stderr = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(0, MAX_COMPLAINT_LENGTH);
  });
  try {
    const [exitCode, signal] = await once(child, 'close');
    if (exitCode === 0) return { ok: true, program };
    const complaint = stderr.trim().replaceAll(`${program}: `, '').replaceAll('\n', '; ');
    return { ok: false, complaint: complaint || `${program} ended with ${exitCode ?? signal}` };
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

function mountRefused(mountpoint: string, complaint: string): TmaxError {
  const message = `can't mount on ${mountpoint}: ${complaint}`;
  if (complaint.includes('user_allow_other')) {
    return new TmaxError('EPERM', `${message}. ${ALLOW_OTHER_REMEDY}`, { source: 'kernel' });
  }
  if (/\/dev\/fuse|device not found|modprobe/.test(complaint)) {
    const errno = complaint.includes('Permission denied') ? 'EACCES' : 'ENOENT';
    return new TmaxError(errno, `${message}. ${DEVICE_REMEDY}`, { source: 'kernel' });
  }
  return new TmaxError('EPERM', message, { source: 'kernel' });
}

/** What to do where an ordinary user may not mount for others. */
export const ALLOW_OTHER_REMEDY =
  'Add the line "user_allow_other" to /etc/fuse.conf (root must), or mount without --allow-other';

/** What to do where /dev/fuse is missing or closed to us. */
export const DEVICE_REMEDY =
  'Load the kernel module (modprobe fuse), in a container pass the device in (--device /dev/fuse), and let every user open it (chmod 666 /dev/fuse, as udev does)';

/** Options are separated by commas; libfuse and fusermount take a backslash before one that belongs to the value. */
export function escapeOption(option: string): string {
  return option.replace(/[\\,]/g, '\\$&');
}
