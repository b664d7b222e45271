/** A booted systemd of its own, with this package's units in it; shares the network and the kernel with this machine. */

import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { type CommandResult, resultOf } from './command.js';
import { packagePath, packageRoot } from './paths.js';
import type { Lifetime } from './temporary.js';

const TREE = process.env['SYSTEMD_ROOT'] ?? '/var/cache/tmaxfs-systemd-root';
const BOOT_TIMEOUT_MS = 60_000;
const LIMITED = ['timeout', '--kill-after=5', '90'];
const POWEROFF_TIMEOUT_MS = 20_000;
const POLL_MS = 100;

/** Whether the tree has been built. Tests that need it are skipped where not, and `.ci/run` takes that for a failure. */
export const hasSystemd = existsSync(`${TREE}/.tmaxfs-complete`);

/** As `hasSystemd`, for the tests that need Slurm too. */
export const hasSlurm = hasSystemd && existsSync(`${TREE}/usr/sbin/slurmd-wlm`);

export interface BootedSystem {
  /** Runs a shell script inside, as root. */
  run(script: string): Promise<CommandResult>;
}

/** Boots the tree, unchanged by what happens in it; powered off with the test. Throws where it does not come up. */
export async function bootSystemd(t: Lifetime): Promise<BootedSystem> {
  const container = execa(
    'setpriv',
    [
      // A test that runs out of its time is ended without its teardown: the container, which has its ports, is told to end with it.
      ...['--pdeathsig', 'TERM', 'systemd-nspawn'],
      ...['--quiet', '--boot', '--directory', TREE, '--register=no', '--keep-unit', '--capability=all'],
      // Changes live in memory and end with the container.
      '--volatile=overlay',
      '--bind=/dev/fuse',
      '--bind=/dev/autofs',
      `--bind-ro=${packageRoot}:/opt/tmaxfs`,
      `--bind-ro=${packagePath('systemd', 'tmaxfs@.service')}:/etc/systemd/system/tmaxfs@.service`,
      `--bind-ro=${packagePath('systemd', 'user', 'tmaxfs@.service')}:/etc/systemd/user/tmaxfs@.service`,
    ],
    { reject: false, stdin: 'ignore', cleanup: true },
  );
  let leader: number | undefined;
  const run = (script: string) =>
    resultOf(
      // Ended inside, with all that it has started: what goes on would keep its output open.
      execa('nsenter', ['--target', String(leader), '--all', ...LIMITED, '/bin/sh', '-c', script], {
        reject: false,
        // This machine's variables mean nothing in there.
        env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', HOME: '/root' },
        extendEnv: false,
      }),
    );
  t.teardown(async () => {
    if (leader !== undefined) await run('systemctl poweroff');
    // What does not go by itself is ended; a test must never wait for it.
    for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
      const hasEnded = await Promise.race([container.then(() => true), delay(POWEROFF_TIMEOUT_MS, false)]);
      if (hasEnded) return;
      container.kill(signal);
    }
  });
  const deadlineMs = Date.now() + BOOT_TIMEOUT_MS;
  while (Date.now() < deadlineMs) {
    leader = systemdBelow(container.pid);
    const state = leader === undefined ? '' : (await run('systemctl is-system-running')).stdout;
    // Degraded: a container can't load kernel modules.
    if (state === 'running' || state === 'degraded') return { run };
    await delay(POLL_MS);
  }
  throw new Error(`systemd did not come up within ${BOOT_TIMEOUT_MS / 1000} s`);
}

/** The container's first process, once it is there: before that, systemd-nspawn has a child that only prepares it. */
function systemdBelow(pid: number | undefined): number | undefined {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ');
    return children.map(Number).find((child) => readFileSync(`/proc/${child}/comm`, 'utf8') === 'systemd\n');
  } catch {
    // The container has not forked yet, or a child has just ended.
    return undefined;
  }
}
