/** Whether FUSE can be used at all: the device, the program that mounts for ordinary users, and what it allows them. */

import { constants } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { systemErrorCode } from '../../errors.js';
import { ALLOW_OTHER_REMEDY, DEVICE_REMEDY } from '../../fuse/fusermount.js';
import { error, note, ok, type Remark, warning } from '../finding.js';
import { CAP_SYS_ADMIN, findProgram, hasCapability, type Machine, readText } from '../machine.js';

/** Linux's Documentation/admin-guide/devices.txt: 10 char, 229 /dev/fuse. */
const FUSE_DEVICE = (10 << 8) | 229;
const SET_UID = 0o4000;
const NOTHING_MOUNTS = 'nothing can be mounted without it';

export async function fuseDevice({ root, uid }: Machine): Promise<readonly Remark[]> {
  let file: FileHandle | undefined;
  try {
    file = await open(`${root}/dev/fuse`, constants.O_RDWR);
    const stats = await file.stat();
    if (stats.isCharacterDevice() && stats.rdev === FUSE_DEVICE) return [ok('/dev/fuse can be opened')];
    const remedy = 'rm /dev/fuse && mknod -m 666 /dev/fuse c 10 229 (as root)';
    return [error('/dev/fuse is not the FUSE device', NOTHING_MOUNTS, remedy)];
  } catch (thrown) {
    const code = systemErrorCode(thrown) ?? 'unknown error';
    return [error(`/dev/fuse can't be opened (${code})`, NOTHING_MOUNTS, deviceRemedy(code, uid))];
  } finally {
    await file?.close();
  }
}

function deviceRemedy(code: string, uid: number): string {
  if (code === 'ENODEV' || code === 'ENXIO') return 'modprobe fuse (as root)';
  if (code === 'EACCES' && uid !== 0) return 'chmod 666 /dev/fuse (as root), as udev does';
  if (code === 'EPERM' || code === 'EACCES') {
    return 'a container keeps it closed: start it with --device /dev/fuse --cap-add SYS_ADMIN';
  }
  return DEVICE_REMEDY;
}

/** fusermount3, or the older fusermount. */
export async function fusermount(machine: Machine): Promise<readonly Remark[]> {
  const path = await findProgram(machine, ['fusermount3', 'fusermount']);
  if (machine.uid === 0) {
    if (!(await hasCapability(machine, CAP_SYS_ADMIN))) {
      const remedy =
        'start the container with --cap-add SYS_ADMIN --device /dev/fuse, or mount outside and bind the mount into it';
      return [error('this root lacks CAP_SYS_ADMIN', 'the kernel lets it mount nothing', remedy)];
    }
    return [ok(path === undefined ? 'root mounts by itself, no fusermount3 is needed' : `${path}; root needs none`)];
  }
  const why = 'an ordinary user mounts and unmounts by it alone';
  if (path === undefined) {
    const remedy = 'apt-get install fuse3, or dnf install fuse3 (as root)';
    return [error('neither fusermount3 nor fusermount is on the PATH', why, remedy)];
  }
  const { mode, uid } = await stat(path);
  if ((mode & SET_UID) === 0 || uid !== 0) {
    return [error(`${path} is not set-uid root`, why, `chown root ${path} && chmod u+s ${path} (as root)`)];
  }
  const status = (await readText(machine, '/proc/self/status')) ?? '';
  if (/^NoNewPrivs:\s*1$/m.test(status)) {
    const remedy = 'mount from outside of this container or sandbox, and bind the mount into it';
    return [error(`${path} has no effect here: this process may not gain privileges (no_new_privs)`, why, remedy)];
  }
  return [ok(`${path} is set-uid root`)];
}

/** user_allow_other; source of the format: mount.fuse3(8), /etc/fuse.conf. */
export async function allowOther(machine: Machine): Promise<readonly Remark[]> {
  const { uid, settings } = machine;
  if (uid === 0) return [ok('root may let other users in')];
  const lines = ((await readText(machine, '/etc/fuse.conf')) ?? '').split('\n').map((line) => line.trim());
  if (lines.includes('user_allow_other')) return [ok('user_allow_other is set in /etc/fuse.conf')];
  const what = 'user_allow_other is not set in /etc/fuse.conf';
  if (settings.allowOther) return [error(what, 'a mount with --allow-other is refused', ALLOW_OTHER_REMEDY)];
  const why = 'only this user can open images of this mount: other users, root and a set-uid apptainer are kept out';
  return [note(what, why, 'echo user_allow_other >> /etc/fuse.conf (as root), then mount with --allow-other')];
}

/** What locate's nightly walk does with a mount. Source of the format: updatedb.conf(5). */
export async function updatedb(machine: Machine): Promise<readonly Remark[]> {
  const text = await readText(machine, '/etc/updatedb.conf');
  if (text === undefined) return [ok('no updatedb walks the mounts of this machine')];
  const words = (name: string) =>
    (new RegExp(`^\\s*${name}\\s*=\\s*"([^"]*)"`, 'm').exec(text)?.[1] ?? '').split(/\s+/).filter(Boolean);
  if (words('PRUNEFS').some((type) => type.toLowerCase() === 'fuse.tmaxfs')) {
    return [ok('updatedb leaves mounts of tmaxfs out (PRUNEFS)')];
  }
  const { mountpoint } = machine;
  const isPruned = words('PRUNEPATHS').some((path) => mountpoint === path || mountpoint?.startsWith(`${path}/`));
  if (isPruned) return [ok('updatedb leaves the mount point out (PRUNEPATHS)')];
  return [
    warning(
      'updatedb walks mounts of tmaxfs: PRUNEFS of /etc/updatedb.conf has no fuse.tmaxfs',
      'every night it lists all of the pool on every node: no download, and yet load, and names that nobody wants to locate',
      `sed -i 's/^\\s*PRUNEFS\\s*=\\s*"/&fuse.tmaxfs /' /etc/updatedb.conf (as root)`,
    ),
  ];
}
