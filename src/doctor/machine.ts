/**
 * What the checks look at: this machine's files, its environment, and what a daemon would run with.
 *
 * Nothing here blocks the event loop: a folder may lie on a network disk that hangs, and the other checks go on.
 */

import { access, constants, type FileHandle, open, stat } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import type { Settings } from '../daemon/settings.js';

export interface Machine {
  /** In front of every path below /proc, /dev, /etc and /boot; "" but in tests. */
  readonly root: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  /** As uname(2) has it: "6.8.0-45-generic". */
  readonly kernelRelease: string;
  /** As "20.19.1". */
  readonly nodeVersion: string;
  readonly settings: Settings;
  /** Variables that this program knows by its options, as TMAXFS_CACHE_DIR. */
  readonly knownVariables: readonly string[];
  /** That the user has named. */
  readonly mountpoint: string | undefined;
}

/** Configuration files are small; what is larger is read up to here. */
const MAX_TEXT_BYTES = 256 * 1024;

/** The text of a file of the system, or undefined where it can't be read. */
export async function readText(machine: Pick<Machine, 'root'>, path: string): Promise<string | undefined> {
  let file: FileHandle | undefined;
  try {
    file = await open(machine.root + path, 'r');
    const buffer = Buffer.alloc(MAX_TEXT_BYTES);
    let length = 0;
    // Files of /proc come in pieces, and know no size.
    for (let got = 1; got > 0 && length < buffer.length; length += got) {
      got = (await file.read(buffer, length, buffer.length - length)).bytesRead;
    }
    return buffer.toString('utf8', 0, length);
  } catch {
    return undefined;
  } finally {
    await file?.close();
  }
}

/** A number of /proc/sys, or undefined where this kernel has none of that name. */
export async function readNumber(machine: Pick<Machine, 'root'>, path: string): Promise<number | undefined> {
  const text = (await readText(machine, path))?.trim();
  return text !== undefined && /^-?\d+$/.test(text) ? Number(text) : undefined;
}

/** Lookups queue up: one folder of the PATH that hangs must not take all of Node's threads. */
let lastLookup: Promise<unknown> = Promise.resolve();

/** The path of the first of these programs that is on the PATH. */
export function findProgram(
  { environment }: Pick<Machine, 'environment'>,
  names: readonly string[],
): Promise<string | undefined> {
  const folders = (environment['PATH'] ?? '').split(delimiter).filter((folder) => folder.startsWith('/'));
  const found = lastLookup.then(() => firstExecutable(folders, names));
  lastLookup = found;
  return found;
}

async function firstExecutable(folders: readonly string[], names: readonly string[]): Promise<string | undefined> {
  for (const name of names) {
    for (const folder of folders) {
      const path = join(folder, name);
      try {
        await access(path, constants.X_OK);
        if ((await stat(path)).isFile()) return path;
      } catch {
        // The next one.
      }
    }
  }
  return undefined;
}

/** Numbers of capabilities(7). */
export const CAP_SYS_ADMIN = 21;

/** Whether this process has a capability in effect. */
export async function hasCapability(machine: Pick<Machine, 'root'>, capability: number): Promise<boolean> {
  const status = (await readText(machine, '/proc/self/status')) ?? '';
  const mask = /^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0';
  return ((BigInt(`0x${mask}`) >> BigInt(capability)) & 1n) === 1n;
}
