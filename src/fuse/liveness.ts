/**
 * Whether a mount of tmaxfs still has its daemon. Asked by statfs(2), which the kernel always passes on: it may answer
 * stat(2) out of its cache long after the daemon has gone.
 */

import { execFile } from 'node:child_process';
import { statfs } from 'node:fs/promises';
import { systemErrorCode } from '../errors.js';
import type { Mount } from './mount-table.js';

/** How long a mount may take to say that it lives; one that says nothing is taken for live, since it can't be proven dead. */
const LIVENESS_LIMIT_MS = 5000;
/** Exit code of the program below where there is no daemon; Node itself ends with small ones. */
const EXIT_DEAD = 83;
const ASK_AS_OWNER = `require('fs').statfs(process.argv[1], (error) => process.exit(error?.code === 'ENOTCONN' ? ${EXIT_DEAD} : 0))`;

export type Liveness = 'live' | 'dead';

/**
 * Where a live daemon does not answer within the limit, a thread of this process goes on waiting for it, and only
 * `exitNow` of libc.ts ends the process without it.
 */
export async function livenessOf(mount: Mount): Promise<Liveness> {
  const owner = ownerThatMustAsk(mount);
  if (owner !== undefined) return askAsOwner(mount.mountpoint, owner);
  const answer = statfs(mount.mountpoint).then(
    (): Liveness => 'live',
    (error): Liveness => (systemErrorCode(error) === 'ENOTCONN' ? 'dead' : 'live'),
  );
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<Liveness>((resolve) => {
    timer = setTimeout(resolve, LIVENESS_LIMIT_MS, 'live');
  });
  return Promise.race([answer, limit]).finally(() => clearTimeout(timer));
}

interface Owner {
  readonly uid: number;
  readonly gid: number;
}

/** To root, the kernel answers for another user's mount by itself, unless that lets others in: root has to ask as that user. */
function ownerThatMustAsk({ superOptions }: Mount): Owner | undefined {
  if (process.geteuid?.() !== 0 || superOptions.includes('allow_other')) return undefined;
  const numberOf = (name: string) => Number(superOptions.find((option) => option.startsWith(name))?.slice(name.length));
  const owner = { uid: numberOf('user_id='), gid: numberOf('group_id=') };
  return owner.uid > 0 && owner.gid >= 0 ? owner : undefined;
}

function askAsOwner(mountpoint: string, owner: Owner): Promise<Liveness> {
  const options = { ...owner, cwd: '/', env: {}, timeout: LIVENESS_LIMIT_MS, killSignal: 'SIGKILL' } as const;
  return new Promise((resolve) => {
    execFile(process.execPath, ['-e', ASK_AS_OWNER, mountpoint], options, (error) =>
      resolve(error?.code === EXIT_DEAD ? 'dead' : 'live'),
    );
  });
}
