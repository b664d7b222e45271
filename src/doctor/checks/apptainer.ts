/** The program that runs the images: whether it is here, how it starts containers, and what it mounts images with. */

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { note, ok, type Remark, warning } from '../finding.js';
import { findProgram, type Machine } from '../machine.js';
import { runProgram } from '../program.js';

const TIMEOUT_MS = 5_000;
const SET_UID = 0o4000;

export interface ApptainerMode {
  readonly path: string;
  /** As it prints it: "apptainer version 1.4.5". */
  readonly version: string;
  /** Whether it starts containers through a program that is set-uid root. */
  readonly isSetUid: boolean;
  /** Where its own helpers are. */
  readonly helpers: string | undefined;
}

/** Undefined where there is none on the PATH. */
export async function apptainerModeOf(machine: Machine): Promise<ApptainerMode | undefined> {
  const path = await findProgram(machine, ['apptainer', 'singularity']);
  if (path === undefined) return undefined;
  const run = (args: readonly string[]) => runProgram(path, args, { timeoutMs: TIMEOUT_MS });
  const [version, configuration] = await Promise.all([run(['--version']), run(['buildcfg'])]);
  const value = (name: string) => new RegExp(`^${name}=(.+)$`, 'm').exec(configuration.stdout)?.[1];
  const name = value('PACKAGE_NAME') ?? 'apptainer';
  const libexec = value('LIBEXECDIR');
  const helpers = libexec === undefined ? undefined : join(libexec, name, 'bin');
  const starter = helpers === undefined ? undefined : await stat(join(helpers, 'starter-suid')).catch(() => undefined);
  const isSetUid = starter !== undefined && starter.uid === 0 && (starter.mode & SET_UID) !== 0;
  return { path, version: version.stdout.trim() || `${path}, which did not tell its version`, isSetUid, helpers };
}

export async function apptainer(machine: Machine): Promise<readonly Remark[]> {
  const mode = await apptainerModeOf(machine);
  if (mode === undefined) {
    return [
      warning(
        'apptainer is not on the PATH',
        'images can be mounted and fetched, and not run here',
        'apt-get install apptainer, dnf install apptainer, or on a cluster: module load apptainer',
      ),
    ];
  }
  const { path, version, isSetUid } = mode;
  const found = ok(
    `${version} (${path}), ${isSetUid ? 'set-uid' : 'without set-uid: containers start in user namespaces'}`,
  );
  if (!isSetUid || machine.uid === 0 || machine.settings.allowOther)
    return [found, ...(await squashfuse(machine, mode))];
  const why = 'it opens images as root, whom an ordinary user\'s mount keeps out: the image "doesn\'t exist" then';
  return [
    found,
    warning(
      'apptainer is set-uid, and the mount will be of an ordinary user',
      why,
      'mount with --allow-other, or as root',
    ),
  ];
}

/** What apptainer without set-uid mounts images with. */
async function squashfuse(machine: Machine, { isSetUid, helpers }: ApptainerMode): Promise<readonly Remark[]> {
  const names = ['squashfuse_ll', 'squashfuse'];
  const bundled = { environment: { PATH: helpers ?? '' } };
  const path = (await findProgram(bundled, names)) ?? (await findProgram(machine, names));
  if (path !== undefined) return [ok(`${path} mounts images for apptainer`)];
  const what = 'neither squashfuse_ll nor squashfuse is here';
  if (isSetUid) return [note(what, 'apptainer mounts images by the kernel instead')];
  const why = 'apptainer unpacks every image into a folder of its own before it starts: slow, and large';
  return [warning(what, why, 'apt-get install squashfuse, or dnf install squashfuse')];
}
