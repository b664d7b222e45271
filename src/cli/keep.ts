/** `tmaxfs pin`, `unpin` and `evict`: tell a daemon what stays on its disk, and what is to go. */

import { relative, resolve } from 'node:path';
import * as v from 'valibot';
import { counted } from '../counted.js';
import { formatBytes } from '../daemon/amount.js';
import { commandDaemon } from '../daemon/control-client.js';
import { realMountpoint } from '../daemon/mountpoint.js';
import { TmaxError } from '../errors.js';
import { chooseMount } from './choose-mount.js';
import { printable } from './table.js';

const failureShape = v.object({ kind: v.literal('failure'), name: v.string(), reason: v.string() });
const pinnedShape = v.object({ blobs: v.number(), bytes: v.number(), absentBlobs: v.number() });
const pinShape = v.object({ images: v.number(), absent: v.number(), pinned: pinnedShape, failures: v.number() });
const unpinShape = v.object({ images: v.number(), failures: v.number() });
const evictShape = v.object({ images: v.number(), absent: v.number(), failures: v.number() });

/** Exit code 1 where a name stands for nothing. Errors: those of `commandDaemon`; EINVAL usage. */
export async function pinCommand(mountpoint: string, names: readonly string[]): Promise<void> {
  const { images, absent, pinned } = await command(mountpoint, '/pin', names, pinShape);
  const more = pinned.absentBlobs > 0 ? ` and ${pinned.absentBlobs} that are not on disk yet` : '';
  say(
    `${counted(images, 'image')} pinned; in all ${counted(pinned.blobs, 'image')} of ${formatBytes(pinned.bytes)}${more} are never evicted`,
  );
  if (absent > 0) {
    say(`${absent} of them not on disk: kept from their first open on; "tmaxfs prefetch" brings them now`);
  }
}

/** Exit code 1 where a name stands for nothing. Errors: those of `commandDaemon`; EINVAL usage. */
export async function unpinCommand(mountpoint: string, names: readonly string[]): Promise<void> {
  const { images } = await command(mountpoint, '/unpin', names, unpinShape);
  say(`${counted(images, 'image')} no longer pinned`);
}

/** Exit code 1 where something that was named stays on disk. Errors: those of `commandDaemon`; EINVAL usage. */
export async function evictCommand(mountpoint: string, names: readonly string[]): Promise<void> {
  const { images, absent } = await command(mountpoint, '/evict', names, evictShape);
  say(`${counted(images, 'image')} removed from disk${absent > 0 ? `; ${absent} not there` : ''}`);
}

async function command<Result extends { readonly failures: number }>(
  mountpoint: string,
  path: string,
  names: readonly string[],
  shape: v.GenericSchema<unknown, Result>,
): Promise<Result> {
  const mount = chooseMount(mountpoint);
  const onLine = (line: unknown): void => {
    const { name, reason } = v.parse(failureShape, line);
    process.stderr.write(printable(`failed: ${name}: ${reason}\n`));
  };
  const body = { names: names.map((name) => nameInMount(name, mount)) };
  const result = v.parse(shape, await commandDaemon(mount, path, body, { onLine }));
  if (result.failures > 0) process.exitCode = 1;
  return result;
}

/** A path below the mount point, or whatever else was written, relative to the mount. Errors: EINVAL a path to elsewhere. */
function nameInMount(name: string, mount: string): string {
  if (name === '') throw new TmaxError('EINVAL', 'a name is ""; name an image or a folder', { source: 'cli' });
  const path = realMountpoint(resolve(name));
  if (path === mount || path.startsWith(`${mount}/`)) return relative(mount, path);
  if (!name.startsWith('/')) return name;
  throw new TmaxError('EINVAL', `${name} is not below ${mount}`, { source: 'cli' });
}

function say(words: string): void {
  process.stdout.write(`${words}\n`);
}
