/** Where a daemon in the background logs to. Apart from the logger itself, which its starter has no use for. */

import { createHash } from 'node:crypto';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { escapePath } from './escape-path.js';

/** A file name may have 255 bytes; rolled files get a suffix. */
const MAX_NAME_BYTES = 200;
const HASH_LENGTH = 16;

/** Default log file of a daemon in the background, by its mount point: no two share one. */
export function defaultLogFile(mountpoint: string, environment: Readonly<Record<string, string | undefined>>): string {
  const state = environment['XDG_STATE_HOME']?.trim() || join(environment['HOME'] || homedir(), '.local', 'state');
  const folder = process.getuid?.() === 0 ? '/var/log/tmaxfs' : join(state, 'tmaxfs');
  const name = escapePath(mountpoint);
  if (name.length <= MAX_NAME_BYTES) return join(folder, `${name}.log`);
  const hash = createHash('sha256').update(mountpoint).digest('hex').slice(0, HASH_LENGTH);
  return join(folder, `${name.slice(0, MAX_NAME_BYTES - HASH_LENGTH - 1)}-${hash}.log`);
}
