/** What the process of a daemon needs: Node, descriptors, and a folder for its sockets. */

import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { systemErrorCode } from '../../errors.js';
import { error, ok, type Remark, warning } from '../finding.js';
import { type Machine, readText } from '../machine.js';

/** As package.json's `engines`. */
const MIN_NODE = [20, 19] as const;
/** 768 sandboxes hold one descriptor each at least, and fetches their sockets and files. */
const MIN_OPEN_FILES = 4096;

export async function node({ nodeVersion }: Machine): Promise<readonly Remark[]> {
  const [major = 0, minor = 0] = nodeVersion.split('.').map(Number);
  const [minMajor, minMinor] = MIN_NODE;
  if (major > minMajor || (major === minMajor && minor >= minMinor)) return [ok(`Node ${nodeVersion}`)];
  const remedy = `install Node ${minMajor}.${minMinor} or newer`;
  return [error(`Node ${nodeVersion} is too old`, 'tmaxfs and its libraries are not made for it', remedy)];
}

/** The hard limit: Node raises the soft one to it. Source of the format: proc_pid_limits(5). */
export async function openFiles(machine: Machine): Promise<readonly Remark[]> {
  const limits = (await readText(machine, '/proc/self/limits')) ?? '';
  const hard = /^Max open files\s+\S+\s+(\S+)/m.exec(limits)?.[1];
  const files = hard === 'unlimited' ? Number.POSITIVE_INFINITY : Number(hard);
  if (Number.isNaN(files) || files >= MIN_OPEN_FILES) return [ok(`${hard ?? 'any number of'} files may be open`)];
  const why = 'each open image takes a descriptor of the daemon: with more of them, opens fail (EMFILE)';
  const remedy = `ulimit -Hn ${MIN_OPEN_FILES} (as root), LimitNOFILE= in a unit, or /etc/security/limits.conf`;
  return [warning(`only ${files} files may be open`, why, remedy)];
}

/** A job may inherit XDG_RUNTIME_DIR from a node where that folder exists. */
export async function runtimeFolder({ uid, environment }: Machine): Promise<readonly Remark[]> {
  const folder = environment['XDG_RUNTIME_DIR']?.trim();
  if (uid === 0) return [ok('sockets lie in /run/tmaxfs')];
  if (!folder) return [ok('sockets lie in the temporary folder')];
  try {
    await access(folder, constants.W_OK | constants.X_OK);
    return [ok(`sockets lie in ${folder}/tmaxfs`)];
  } catch (thrown) {
    const what = `XDG_RUNTIME_DIR=${folder} can't be used (${systemErrorCode(thrown)})`;
    const why =
      'the daemon keeps its control socket there, and does not start without; jobs inherit it from other nodes';
    return [error(what, why, 'unset XDG_RUNTIME_DIR')];
  }
}
