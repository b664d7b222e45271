/** `tmaxfs unmount`: detaches the mount; its daemon notices, and ends. */

import { existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import * as v from 'valibot';
import { askDaemon } from '../daemon/control-client.js';
import { realMountpoint } from '../daemon/mountpoint.js';
import { messageOf, TmaxError } from '../errors.js';
import { MOUNT_TYPE, topMountAt } from '../fuse/mount-table.js';
import { unmount } from '../fuse/unmount.js';

/** How long the daemon is waited for after its mount has gone. */
const DAEMON_END_TIMEOUT_MS = 10_000;
const POLL_MS = 50;

/** Errors: ENOENT no tmaxfs mount there; EBUSY naming who holds it. */
export async function unmountCommand(mountpoint: string, options: { readonly lazy: boolean }): Promise<void> {
  const path = realMountpoint(mountpoint);
  // Root could unmount anything by this command.
  if (topMountAt(path)?.type !== MOUNT_TYPE) {
    throw new TmaxError('ENOENT', `no tmaxfs is mounted on ${path}`, { source: 'cli' });
  }
  const pid = await daemonPid(path);
  await unmount(path, { lazy: options.lazy });
  // With --lazy it goes on for as long as files are open.
  if (pid !== undefined && !options.lazy) await gone(pid);
}

async function daemonPid(path: string): Promise<number | undefined> {
  try {
    return v.parse(v.object({ pid: v.number() }), await askDaemon(path, '/status')).pid;
  } catch (error) {
    // A dead or hung daemon is just what is being unmounted.
    process.stderr.write(`tmaxfs: ${messageOf(error)}; unmounting all the same\n`);
    return undefined;
  }
}

async function gone(pid: number): Promise<void> {
  const deadlineMs = Date.now() + DAEMON_END_TIMEOUT_MS;
  while (existsSync(`/proc/${pid}`) && Date.now() < deadlineMs) await delay(POLL_MS);
}
