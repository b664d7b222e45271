/** A real apptainer: the machine's own, or the one that `test/support/apptainer-root build` has made. */

import { existsSync } from 'node:fs';
import { execa, execaSync } from 'execa';
import { type CommandResult, resultOf } from './command.js';
import { packagePath } from './paths.js';

const TREE = process.env['APPTAINER_ROOT'] ?? '/var/cache/tmaxfs-apptainer-root';
const COMMAND_TIMEOUT_MS = 90_000;
/** An ordinary user of the machine, where apptainer is its own. */
const USER = 1000;

const isInstalled = !execaSync('apptainer', ['--version'], { reject: false }).failed;

/** Whether there is one. Tests that need it are skipped where not, and `.ci/run` takes a skipped test for a failure. */
export const hasApptainer = isInstalled || existsSync(`${TREE}/.tmaxfs-complete`);

export interface ApptainerOptions {
  /** Folder that the images are in, mounts below it included. */
  readonly folder: string;
  readonly asUser?: boolean;
}

/** Runs `apptainer ARGS`; the exit code is for the caller to judge. */
export function apptainer(
  args: readonly string[],
  { folder, asUser = false }: ApptainerOptions,
): Promise<CommandResult> {
  const options = { reject: false, timeout: COMMAND_TIMEOUT_MS, stdin: 'ignore' } as const;
  if (!isInstalled) {
    const root = packagePath('test', 'support', 'apptainer-root');
    return resultOf(execa(root, ['exec', ...(asUser ? ['--as-user'] : []), folder, 'apptainer', ...args], options));
  }
  const user = asUser ? ['setpriv', '--reuid', String(USER), '--regid', String(USER), '--init-groups'] : [];
  const [file, ...rest] = [...user, 'apptainer', ...args];
  return resultOf(execa(file ?? 'apptainer', rest, options));
}
