/**
 * Who keeps a mount busy: processes with an open file, a working directory, a root or a mapped file on it.
 *
 * Looks at the links of /proc only and never at what they point to, so that it can't hang on the mount itself. An
 * ordinary user sees only processes of their own. Bounded in time and in what it returns.
 */

import { readdir, readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';

export interface Holder {
  readonly pid: number;
  /** Short name of the program, as in /proc/<pid>/comm. */
  readonly command: string;
  /** What it holds, as "working directory" or a path on the mount. */
  readonly holds: string;
}

/** How many holders are named. */
export const MAX_HOLDERS = 10;
/** How long is looked for them. */
const SEARCH_LIMIT_MS = 5000;
/** How many processes are looked at together. */
const BATCH = 32;
/** How many descriptors of one process are looked at. */
const MAX_DESCRIPTORS_PER_PROCESS = 20_000;

const LINKS: readonly (readonly [string, string])[] = [
  ['cwd', 'working directory'],
  ['root', 'root directory'],
  ['exe', 'running program'],
];

/** Up to `MAX_HOLDERS` processes that keep `mountpoint` (absolute) busy. */
export async function findHolders(mountpoint: string): Promise<readonly Holder[]> {
  const deadline = performance.now() + SEARCH_LIMIT_MS;
  const pids = (await list('/proc')).filter((entry) => /^\d+$/.test(entry));
  const holders: Holder[] = [];
  for (let start = 0; start < pids.length; start += BATCH) {
    if (holders.length >= MAX_HOLDERS || performance.now() > deadline) break;
    const found = await Promise.all(pids.slice(start, start + BATCH).map((pid) => holderOf(Number(pid), mountpoint)));
    holders.push(...found.flatMap((holder) => holder ?? []));
  }
  return holders.slice(0, MAX_HOLDERS);
}

/** "3812 (python3): /mnt/a.sif, 4000 (bash): working directory". */
export function describeHolders(holders: readonly Holder[]): string {
  return holders.map(({ pid, command, holds }) => `${pid} (${command}): ${holds}`).join(', ');
}

async function holderOf(pid: number, mountpoint: string): Promise<Holder | undefined> {
  const directory = `/proc/${pid}`;
  const holds = await heldBy(directory, mountpoint);
  if (holds === undefined) return undefined;
  return { pid, command: (await text(join(directory, 'comm'))).trim(), holds };
}

async function heldBy(directory: string, mountpoint: string): Promise<string | undefined> {
  for (const [name, description] of LINKS) {
    if (isWithin(await linkTarget(join(directory, name)), mountpoint)) return description;
  }
  const descriptors = (await list(join(directory, 'fd'))).slice(0, MAX_DESCRIPTORS_PER_PROCESS);
  const targets = await Promise.all(descriptors.map((descriptor) => linkTarget(join(directory, 'fd', descriptor))));
  const file = targets.find((target) => isWithin(target, mountpoint));
  return file ?? mappedFile(await text(join(directory, 'maps')), mountpoint);
}

/** A line of maps ends in the path of the mapped file, from its first "/" on (see proc(5)). */
function mappedFile(maps: string, mountpoint: string): string | undefined {
  for (const line of maps.split('\n')) {
    const start = line.indexOf('/');
    if (start < 0) continue;
    const path = line.slice(start);
    if (isWithin(path, mountpoint)) return path;
  }
  return undefined;
}

function isWithin(path: string, mountpoint: string): boolean {
  return path === mountpoint || path.startsWith(`${mountpoint}/`);
}

/** Processes come and go, and those of others can't be looked at: what can't be read is empty. */
async function list(directory: string): Promise<readonly string[]> {
  return readdir(directory).catch(() => []);
}

async function linkTarget(path: string): Promise<string> {
  return readlink(path).catch(() => '');
}

async function text(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}
