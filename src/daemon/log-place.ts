/** Where a daemon in the background logs to. Apart from the logger itself, which its starter has no use for. */

import { homedir } from 'node:os';
import { join } from 'node:path';

/** Default log file of a daemon in the background, by its mount point. */
export function defaultLogFile(mountpoint: string, environment: Readonly<Record<string, string | undefined>>): string {
  const folder =
    process.getuid?.() === 0
      ? '/var/log/tmaxfs'
      : join(environment['XDG_STATE_HOME'] ?? join(environment['HOME'] ?? homedir(), '.local', 'state'), 'tmaxfs');
  return join(folder, `${mountpoint.split('/').filter(Boolean).join('-') || 'root'}.log`);
}
