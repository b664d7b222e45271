/**
 * Ends a FUSE connection from outside, whoever still holds files on it: the only way to wake a thread that blocks in a
 * read of /dev/fuse while somebody uses the (perhaps already detached) mount.
 *
 * Source: Linux's Documentation/filesystems/fuse.rst, "Control filesystem". The control files belong to who mounted.
 */

import { mkdtemp, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemErrorCode } from '../errors.js';
import { mount, unmount } from '../libc.js';

const CONTROL_DIRECTORY = '/sys/fs/fuse/connections';
const CONTROL_TYPE = 'fusectl';

/** Aborts the connection with this number (the minor number of the mount's device). Throws what writing a file throws. */
export async function abortConnection(connection: string): Promise<void> {
  try {
    await writeFile(join(CONTROL_DIRECTORY, connection, 'abort'), '1');
  } catch (error) {
    if (systemErrorCode(error) !== 'ENOENT' || process.geteuid?.() !== 0) throw error;
    await abortThroughOwnMount(connection);
  }
}

/** Where nobody has mounted the control file system (containers), root can for a moment. */
async function abortThroughOwnMount(connection: string): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'tmaxfs-fusectl-'));
  try {
    mount(CONTROL_TYPE, directory, CONTROL_TYPE, 0, '');
    try {
      await writeFile(join(directory, connection, 'abort'), '1');
    } finally {
      await unmount(directory, 0);
    }
  } finally {
    await rmdir(directory);
  }
}
