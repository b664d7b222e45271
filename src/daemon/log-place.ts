/** Where a daemon in the background logs to. Apart from the logger itself, which its starter has no use for. */

import { createHash } from 'node:crypto';
import { homedir } from 'node:os';
import { join } from 'node:path';

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

/** As `systemd-escape --path` does, and so as the instance of a unit is called: "/a/b-c" is "a-b\x2dc". */
function escapePath(path: string): string {
  const steps = path.split('/').filter(Boolean);
  if (steps.length === 0) return '-';
  return steps.map(escapeStep).join('-').replace(/^\./, '\\x2e');
}

function escapeStep(step: string): string {
  const bytes = [...Buffer.from(step, 'utf8')];
  return bytes
    .map((byte) => {
      const character = String.fromCharCode(byte);
      return /[A-Za-z0-9:_.]/.test(character) ? character : `\\x${byte.toString(16).padStart(2, '0')}`;
    })
    .join('');
}
