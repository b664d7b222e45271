/** Users of one group. */

import { chmodSync, chownSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { type CommandResult, resultOf } from './command.js';
import { packagePath } from './paths.js';
import { type Lifetime, temporaryFolder } from './temporary.js';

export const GROUP = 20100;
/** Users that every machine has, "daemon" and "bin": fusermount asks for their names. */
export const [ANNA, BERT] = [1, 2];

/** A command, and its arguments, that runs another as a user whose further group is `group`. */
export function as(uid: number, group = GROUP, umask = '022'): readonly string[] {
  const user = ['--reuid', String(uid), '--regid', String(uid), '--groups', String(group)];
  return ['setpriv', ...user, 'sh', '-c', `umask ${umask}; exec "$0" "$@"`];
}

/** A cache directory as an administrator makes it. */
export function groupFolder(t: Lifetime, mode = 0o3770): string {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o755);
  const root = join(folder, 'cache');
  mkdirSync(root);
  chownSync(root, 0, GROUP);
  chmodSync(root, mode);
  return root;
}

/** Opens a cache in a process of its own: what is wrong with it is on standard error, and the exit code is 1 then. */
export function openCache(wrapper: readonly string[], root: string, isShared = true): Promise<CommandResult> {
  const [file = '', ...args] = wrapper;
  const program = packagePath('build', 'test', 'support', 'open-cache.js');
  const words = [...args, process.execPath, program, root, isShared ? 'shared' : 'own'];
  return resultOf(execa(file, words, { reject: false }));
}
