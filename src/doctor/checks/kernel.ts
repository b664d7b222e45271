/** What this kernel offers: passthrough of reads, and the user namespaces in which apptainer starts containers. */

import { readFile } from 'node:fs/promises';
import { gunzipSync } from 'node:zlib';
import { note, ok, type Remark, warning } from '../finding.js';
import { CAP_SYS_ADMIN, findProgram, hasCapability, type Machine, readNumber, readText } from '../machine.js';
import { runProgram } from '../program.js';
import { apptainerModeOf } from './apptainer.js';
import { fileSystemOf } from './cache-disk.js';

/** Passthrough came with Linux 6.9. */
const PASSTHROUGH_SINCE = [6, 9] as const;
/** File systems that lie on others: the kernel refuses to pass reads through to a second storey. */
const STACKED = new Set(['overlay', 'ecryptfs']);
const MAX_CONFIG_BYTES = 4 * 1024 * 1024;
const UNSHARE_LIMIT_MS = 5_000;

/** Whether the kernel will read cache files by itself, or this machine's reads go through the daemon. */
export async function passthrough(machine: Machine): Promise<readonly Remark[]> {
  const { kernelRelease, settings } = machine;
  const [major = 0, minor = 0] = kernelRelease.split(/[.-]/).map(Number);
  const [sinceMajor, sinceMinor] = PASSTHROUGH_SINCE;
  const reads = 'reads are relayed by the daemon: they work, and cost processor time (docs/performance.md)';
  const here = `Linux ${kernelRelease}`;
  if (major < sinceMajor || (major === sinceMajor && minor < sinceMinor)) {
    return [note(`${here} has no passthrough`, reads, `Linux ${sinceMajor}.${sinceMinor} or newer has it`)];
  }
  if (await isConfiguredWithout(machine)) {
    return [note(`${here} was built without passthrough`, reads, 'a kernel with CONFIG_FUSE_PASSTHROUGH=y')];
  }
  if (!(await hasCapability(machine, CAP_SYS_ADMIN))) {
    return [note('passthrough needs root (CAP_SYS_ADMIN)', reads, 'mount as root, or as a service')];
  }
  const { type, mountpoint } = fileSystemOf(settings.cacheDirectory);
  if (STACKED.has(type)) {
    return [
      note(
        `the cache lies on ${type} (${mountpoint})`,
        reads,
        '--cache-dir on an ordinary file system, as ext4 or xfs',
      ),
    ];
  }
  return [ok(`${here} passes reads through to the cache file`)];
}

/** False where the kernel does not tell. */
async function isConfiguredWithout(machine: Machine): Promise<boolean> {
  const plain = await readText(machine, `/boot/config-${machine.kernelRelease}`);
  const packed =
    plain === undefined ? await readFile(`${machine.root}/proc/config.gz`).catch(() => undefined) : undefined;
  const config =
    plain ?? (packed === undefined ? '' : gunzipSync(packed, { maxOutputLength: MAX_CONFIG_BYTES }).toString());
  return config.includes('# CONFIG_FUSE_PASSTHROUGH is not set');
}

/** By trying: that a namespace can be made, with this user as its root, is all that counts. */
export async function userNamespaces(machine: Machine): Promise<readonly Remark[]> {
  const unshare = await findProgram(machine, ['unshare']);
  if (unshare !== undefined) {
    const trial = await runProgram(unshare, ['--user', '--map-root-user', 'true'], { timeoutMs: UNSHARE_LIMIT_MS });
    if (trial.exitCode === 0) return [ok('user namespaces can be made')];
  }
  const cause = await namespaceObstacle(machine);
  if (cause === undefined) {
    return unshare === undefined
      ? [note('whether user namespaces can be made is not known: no unshare here', WITHOUT_NAMESPACES)]
      : [
          refused(
            await isSetUid(machine),
            "user namespaces can't be made",
            'a container or its seccomp profile forbids them',
          ),
        ];
  }
  if (cause.isForApptainer)
    return [ok('user namespaces are kept from all but apptainer, which has its AppArmor profile')];
  return [refused(await isSetUid(machine), cause.what, cause.remedy)];
}

const WITHOUT_NAMESPACES = 'apptainer without set-uid starts no container then';

function refused(setUid: boolean, what: string, remedy: string): Remark {
  return setUid
    ? note(what, 'the set-uid apptainer of this machine does without, but for --fakeroot and --userns', remedy)
    : warning(what, WITHOUT_NAMESPACES, remedy);
}

async function isSetUid(machine: Machine): Promise<boolean> {
  return (await apptainerModeOf(machine))?.isSetUid ?? false;
}

interface Obstacle {
  readonly what: string;
  readonly remedy: string;
  readonly isForApptainer: boolean;
}

async function namespaceObstacle(machine: Machine): Promise<Obstacle | undefined> {
  if ((await readNumber(machine, '/proc/sys/user/max_user_namespaces')) === 0) {
    const remedy = 'sysctl -w user.max_user_namespaces=15000 (as root; a file in /etc/sysctl.d keeps it)';
    return { what: 'user.max_user_namespaces is 0', remedy, isForApptainer: false };
  }
  if ((await readNumber(machine, '/proc/sys/kernel/unprivileged_userns_clone')) === 0) {
    const remedy = 'sysctl -w kernel.unprivileged_userns_clone=1 (as root; a file in /etc/sysctl.d keeps it)';
    return { what: 'kernel.unprivileged_userns_clone is 0', remedy, isForApptainer: false };
  }
  if ((await readNumber(machine, '/proc/sys/kernel/apparmor_restrict_unprivileged_userns')) === 1) {
    const isForApptainer = (await readText(machine, '/etc/apparmor.d/apptainer')) !== undefined;
    const remedy =
      'install apptainer from its own package, which brings a profile, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (as root)';
    return { what: 'AppArmor keeps user namespaces from programs without a profile', remedy, isForApptainer };
  }
  return undefined;
}
