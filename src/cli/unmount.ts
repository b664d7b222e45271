/** `tmaxfs unmount`: detaches the mount; its daemon notices, and ends. With --dead: only what no daemon is behind. */

import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import * as v from 'valibot';
import { askDaemon } from '../daemon/control-client.js';
import { lockMountpoint, type MountLock } from '../daemon/mount-lock.js';
import { realMountpoint } from '../daemon/mountpoint.js';
import { TmaxError, wordsOf } from '../errors.js';
import type { Holder } from '../fuse/holders.js';
import { MOUNT_TYPE, tmaxfsMounts, topMountAt } from '../fuse/mount-table.js';
import { takeAwayDeadMounts } from '../fuse/mounts.js';
import { unmount } from '../fuse/unmount.js';

/** How long the daemon is waited for after its mount has gone. */
const DAEMON_END_TIMEOUT_MS = 10_000;
const POLL_MS = 50;

/** All of its status that matters here. */
const statusShape = v.object({
  pid: v.pipe(v.number(), v.integer(), v.minValue(1)),
  kernel: v.object({ openHandles: v.number() }),
  opens: v.object({ waiting: v.array(v.object({ pid: v.number(), name: v.string() })) }),
});

/** Errors: EINVAL no mount point is named; those of `unmountOne` and `unmountDead`. */
export async function unmountCommand(
  mountpoint: string | undefined,
  { lazy, dead }: { readonly lazy: boolean; readonly dead: boolean },
): Promise<void> {
  if (dead) return unmountDead(mountpoint);
  if (mountpoint === undefined) throw new TmaxError('EINVAL', 'name the mount point', { source: 'cli' });
  return unmountOne(mountpoint, { lazy });
}

/** Those of this user, or the one named. That there is none is what was wanted. Errors: EPERM another user's. */
async function unmountDead(mountpoint: string | undefined): Promise<void> {
  const paths = mountpoint === undefined ? mountsOfThisUser() : [realMountpoint(mountpoint)];
  for (const path of paths) {
    const lock = lockUnlessBeingMounted(path);
    // Whoever mounts there takes away what is dead by itself, and what it mounts must not be taken for that.
    if (lock === undefined) continue;
    try {
      const taken = await takeAwayDeadMounts(path);
      if (taken > 0) process.stdout.write(`${path}: a dead mount is taken away\n`);
    } finally {
      lock.release();
    }
  }
}

function lockUnlessBeingMounted(mountpoint: string): MountLock | undefined {
  try {
    return lockMountpoint(mountpoint, process.env);
  } catch (error) {
    if (error instanceof TmaxError && error.errno === 'EBUSY') return undefined;
    throw error;
  }
}

/** Root may unmount everybody's. */
function mountsOfThisUser(): ReadonlySet<string> {
  const uid = process.geteuid?.() ?? 0;
  const mine = tmaxfsMounts().filter(({ superOptions }) => uid === 0 || superOptions.includes(`user_id=${uid}`));
  return new Set(mine.map(({ mountpoint }) => mountpoint));
}

/** Errors: ENOENT no tmaxfs mount there; EBUSY naming who holds it; EPERM another user's. */
async function unmountOne(mountpoint: string, options: { readonly lazy: boolean }): Promise<void> {
  const path = realMountpoint(mountpoint);
  // Root could unmount anything by this command.
  if (topMountAt(path)?.type !== MOUNT_TYPE) {
    throw new TmaxError('ENOENT', `no tmaxfs is mounted on ${path}`, { source: 'cli' });
  }
  const daemon = await daemonStatus(path);
  await unmount(path, { lazy: options.lazy, knownHolders: daemon?.opens.waiting.map(waitingHolder) ?? [] });
  if (daemon === undefined) return;
  // With --lazy it is known beforehand whether there is something to wait for, and nobody wants to.
  const ends = options.lazy ? daemon.kernel.openHandles === 0 : await hasEnded(daemon.pid);
  if (ends) return;
  const why =
    daemon.kernel.openHandles > 0
      ? 'until what is open there is closed'
      : `while a container or a working directory keeps the mount; "kill ${daemon.pid}" ends it all the same`;
  process.stdout.write(`detached; the daemon (pid ${daemon.pid}) goes on ${why}\n`);
}

async function daemonStatus(path: string): Promise<v.InferOutput<typeof statusShape> | undefined> {
  try {
    return v.parse(statusShape, await askDaemon(path, '/status'));
  } catch (error) {
    // A dead or hung daemon is just what is being unmounted; of another user's, unmounting says what there is to say.
    const errno = error instanceof TmaxError ? error.errno : undefined;
    // Its own words tell to do just this.
    const words = errno === 'ENOTCONN' ? `no daemon answers behind ${path}` : wordsOf(error);
    if (errno !== 'EACCES') process.stderr.write(`tmaxfs: ${words}: unmounting all the same\n`);
    return undefined;
  }
}

/** An open that is not answered yet is in no list of /proc. */
function waitingHolder({ pid, name }: { readonly pid: number; readonly name: string }): Holder {
  return { pid, command: commandOf(pid), holds: `waiting for ${name}` };
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    // It has ended, or is in a namespace that this process can't see into.
    return 'unknown';
  }
}

async function hasEnded(pid: number): Promise<boolean> {
  const deadlineMs = performance.now() + DAEMON_END_TIMEOUT_MS;
  while (isRunning(pid)) {
    if (performance.now() >= deadlineMs) return false;
    await delay(POLL_MS);
  }
  return true;
}

/** One that has ended stays in the table until its parent has taken notice. */
function isRunning(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
