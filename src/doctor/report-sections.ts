/** What is gathered for a report. */

import { open, readFile } from 'node:fs/promises';
import { arch, cpus, freemem, hostname, totalmem, uptime } from 'node:os';
import { BlobStore } from '../blobs/blob-store.js';
import { counted } from '../counted.js';
import { formatBytes } from '../daemon/amount.js';
import { askDaemon } from '../daemon/control-client.js';
import { defaultLogFile } from '../daemon/log-place.js';
import { shownSettings } from '../daemon/settings-log.js';
import type { Status } from '../daemon/status.js';
import { messageOf } from '../errors.js';
import { tmaxfsMounts } from '../fuse/mount-table.js';
import { version } from '../version.js';
import { apptainerModeOf } from './checks/apptainer.js';
import { fileSystemOf } from './checks/cache-disk.js';
import { findProgram, type Machine, readText } from './machine.js';
import { runProgram } from './program.js';
import { shownVariable } from './redact.js';
import type { Section } from './report.js';

/** Mounts that are told of. */
const MAX_MOUNTS = 4;
/** Of the end of a log file. */
const LOG_TAIL_BYTES = 256 * 1024;
const JOURNAL_LINES = 1000;
const PROGRAM_LIMIT_MS = 5_000;
/** Variables that decide what a daemon or apptainer does. */
const TELLING_VARIABLE =
  /^(?:TMAXFS|HF|HUGGING_FACE|XDG|SLURM|APPTAINER|SINGULARITY|NODE|UV|SSL)_|_proxy$|^(?:PATH|HOME|TMPDIR|LANG)$/i;

export async function reportSections(machine: Machine, diagnosis: () => Promise<string>): Promise<readonly Section[]> {
  const chosen = tmaxfsMounts()
    .map(({ mountpoint }) => mountpoint)
    .filter((mountpoint) => machine.mountpoint === undefined || machine.mountpoint === mountpoint);
  const mountpoints = [...new Set(chosen)].slice(0, MAX_MOUNTS);
  const statuses = await Promise.all(mountpoints.map(daemonStatus));
  const { cacheDirectory, sharedCache } = machine.settings;
  const caches = new Map([[cacheDirectory, sharedCache]]);
  for (const { cache } of statuses) if (cache !== undefined) caches.set(cache.directory, cache.isShared);
  const logs = mountpoints.length > 0 || machine.mountpoint === undefined ? mountpoints : [machine.mountpoint];
  return [
    { title: 'versions', gather: () => versions(machine) },
    { title: 'doctor', gather: diagnosis },
    {
      title: 'settings (of a mount that would be started in this shell)',
      gather: async () => json({ ...shownSettings(machine.settings), mountpoint: machine.mountpoint }),
    },
    { title: 'variables', gather: async () => variables(machine) },
    { title: 'mounts', gather: () => mountLines([...caches.keys()]) },
    ...mountpoints.map((mountpoint) => ({
      title: `status of ${mountpoint}`,
      gather: async () => json(await askDaemon(mountpoint, '/status')),
    })),
    ...[...caches].map(([directory, isShared]) => ({
      title: `cache ${directory}`,
      gather: () => cacheInNumbers(directory, isShared),
    })),
    ...logs.map((mountpoint) => ({ title: `log of ${mountpoint}`, gather: () => log(machine, mountpoint) })),
  ];
}

async function versions(machine: Machine): Promise<string> {
  const fuse = await findProgram(machine, ['fusermount3', 'fusermount']);
  const fuseVersion =
    fuse === undefined ? undefined : await runProgram(fuse, ['--version'], { timeoutMs: PROGRAM_LIMIT_MS });
  const apptainer = await apptainerModeOf(machine);
  const distribution = /^PRETTY_NAME="?([^"\n]*)/m.exec((await readText(machine, '/etc/os-release')) ?? '')?.[1];
  const memory = `${formatBytes(freemem())} free of ${formatBytes(totalmem())}`;
  return [
    `tmaxfs     ${version}`,
    `node       ${machine.nodeVersion} (${process.execPath})`,
    `kernel     Linux ${machine.kernelRelease} ${arch()}`,
    `system     ${distribution ?? 'unknown'}`,
    `fuse       ${fuseVersion === undefined ? 'no fusermount' : fuseVersion.stdout.trim() || fuseVersion.stderr.trim()}`,
    `apptainer  ${apptainer === undefined ? 'none' : `${apptainer.version}${apptainer.isSetUid ? ', set-uid' : ''}`}`,
    `machine    ${hostname()}, ${cpus().length} processors, ${memory}, up for ${Math.round(uptime() / 3600)} h`,
    `user       uid ${machine.uid}`,
    `written    ${new Date().toISOString()}`,
  ].join('\n');
}

function variables({ environment }: Machine): string {
  return Object.entries(environment)
    .filter(([name, value]) => value !== undefined && TELLING_VARIABLE.test(name))
    .map(([name, value = '']) => `${name}=${shownVariable(name, value)}`)
    .sort()
    .join('\n');
}

/** Those of tmaxfs, and the disks of the caches: sources of others may hold what is not ours to tell. */
async function mountLines(caches: readonly string[]): Promise<string> {
  const ids = new Set(caches.map((directory) => String(fileSystemOf(directory).id)));
  const lines = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n');
  return lines.filter((line) => line.includes(' - fuse.tmaxfs ') || ids.has(line.split(' ', 1)[0] ?? '')).join('\n');
}

async function cacheInNumbers(directory: string, isShared: boolean): Promise<string> {
  const store = await BlobStore.existing(directory, { isShared });
  const [blobs, disk] = await Promise.all([store.list(), store.disk()]);
  const bytes = blobs.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const unproven = blobs.filter(({ sha256 }) => store.proofs.read(sha256) === undefined).length;
  const oldest = blobs[0] === undefined ? '' : `, least recently used ${new Date(blobs[0].usedAtMs).toISOString()}`;
  return [
    `${counted(blobs.length, 'blob')}, ${formatBytes(bytes)}, ${unproven} of them without a proof${oldest}`,
    `${formatBytes(disk.availableBytes)} free of ${formatBytes(disk.totalBytes)} on its disk`,
  ].join('\n');
}

/** Of the daemon that serves the mount, else of the last that did. */
async function log(machine: Machine, mountpoint: string): Promise<string> {
  const known = await daemonStatus(mountpoint);
  if (known.logFile === null) return journal(machine, String(known.pid));
  const file = typeof known.logFile === 'string' ? known.logFile : defaultLogFile(mountpoint, machine.environment);
  return `${file}\n${await tailOf(file)}`;
}

/** What its daemon says of itself; nothing of one that does not answer. A daemon is of this package, and so is its document. */
async function daemonStatus(mountpoint: string): Promise<Partial<Status>> {
  return (await askDaemon(mountpoint, '/status').catch(() => ({}))) as Partial<Status>;
}

/** Whole lines only. */
async function tailOf(path: string): Promise<string> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const start = Math.max(0, size - LOG_TAIL_BYTES);
    const buffer = Buffer.alloc(Math.min(size, LOG_TAIL_BYTES));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, start);
    const text = buffer.toString('utf8', 0, bytesRead);
    const firstEnd = start === 0 ? 0 : text.indexOf('\n') + 1;
    return start > 0 && firstEnd === 0 ? '(its last line is too long to be shown)' : text.slice(firstEnd);
  } finally {
    await file.close();
  }
}

/** A daemon that logs to standard error is most likely a service. */
async function journal(machine: Machine, pid: string): Promise<string> {
  const journalctl = await findProgram(machine, ['journalctl']);
  if (journalctl === undefined) return 'it goes to standard error of the daemon, and there is no journalctl here';
  const args = ['--no-pager', '--output', 'cat', '--lines', String(JOURNAL_LINES), `_PID=${pid}`];
  const { exitCode, stdout, stderr } = await runProgram(journalctl, args, { timeoutMs: PROGRAM_LIMIT_MS });
  return exitCode === 0 ? stdout : `journalctl says nothing of it: ${messageOf(stderr.trim())}`;
}

function json(value: unknown): string {
  return JSON.stringify(value, null, 2);
}
