/** A machine for the doctor's checks, with files of its own below a folder where a test needs them to be otherwise. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { release } from 'node:os';
import { dirname, join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { type MountWords, readSettings } from '../../src/daemon/settings.js';
import type { Machine } from '../../src/doctor/machine.js';
import { MOUNT_WORDS } from './mount-words.js';
import { temporaryFolder } from './temporary.js';

export interface MachineOptions {
  /** Content by absolute path, as "/etc/fuse.conf". */
  readonly files?: Readonly<Record<string, string>>;
  readonly environment?: Readonly<Record<string, string>>;
  readonly words?: Partial<MountWords>;
  readonly uid?: number;
  readonly kernelRelease?: string;
  readonly nodeVersion?: string;
  readonly mountpoint?: string;
}

const DEFAULT_WORDS: MountWords = {
  ...MOUNT_WORDS,
  mountpoint: '/',
  repo: 'test-org/test-pool',
  cacheSize: '1M',
  reserveFree: '0',
  verifyThreads: '1',
  scrub: 'off',
};

/** With `files`, paths below /proc, /dev, /etc and /boot are looked for in a folder that holds them and nothing else. */
export function machine(t: ExecutionContext, options: MachineOptions = {}): Machine {
  const folder = temporaryFolder(t);
  for (const [path, text] of Object.entries(options.files ?? {})) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  const environment = { PATH: process.env['PATH'] ?? '', HOME: folder, ...options.environment };
  const words = { cacheDir: join(folder, 'cache'), ...DEFAULT_WORDS, ...options.words };
  return {
    root: options.files === undefined ? '' : folder,
    environment,
    uid: options.uid ?? 0,
    kernelRelease: options.kernelRelease ?? release(),
    nodeVersion: options.nodeVersion ?? process.versions.node,
    settings: readSettings(words, environment),
    knownVariables: ['TMAXFS_CACHE_DIR'],
    mountpoint: options.mountpoint,
  };
}

/** Writes a program into a folder of its own, to be found on a PATH; returns the folder. */
export function programFolder(t: ExecutionContext, programs: Readonly<Record<string, string>>): string {
  const folder = temporaryFolder(t);
  for (const [name, script] of Object.entries(programs)) {
    writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  }
  return folder;
}
