/**
 * `ls -l` of the 14,601 tasks of one variant, through the real daemon, against a folder of ext4 with files of the same names
 * and sizes. "First" is with the kernel's names and inodes dropped, whose blocks stay in the page cache.
 */

import { closeSync, ftruncateSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { MountedPool } from '../test/support/mounted-pool.js';
import { POOL_TASKS, poolImages, poolTaskMap } from '../test/support/pool-scale.js';
import { temporaryFolder } from '../test/support/temporary.js';
import type { Bench, Contestant } from './bench.js';
import { BenchLifetime } from './support/lifetime.js';
import { hasRclone, mountByRclone } from './support/rclone.js';

const VARIANT = 'original';
const FIRST_AT_MOST = 3;
const REPEATED_AT_MOST = 1.2;

export const listing: Bench = {
  name: 'listing',
  description: '`ls -l` of a folder with 14,601 images',
  setup: async () => {
    const lifetime = new BenchLifetime();
    const tasks = poolTaskMap();
    const images = poolImages(tasks);
    const local = temporaryFolder(lifetime);
    const sizes = new Map(images.map(({ path, sizeBytes }) => [path, sizeBytes]));
    for (const [task, path] of Object.entries(tasks[VARIANT] ?? {})) {
      const descriptor = openSync(join(local, `${task}.sif`), 'w', 0o555);
      ftruncateSync(descriptor, sizes.get(path));
      closeSync(descriptor);
    }
    const pool = (...args: string[]) => MountedPool.start(lifetime, { files: images, tasks, args });
    const folders: [string, string][] = [
      ['ext4', local],
      ['tmaxfs', (await pool()).path(VARIANT)],
      ['tmaxfs, fuse-native', (await pool('--driver', 'fuse-native')).path(VARIANT)],
    ];
    if (hasRclone) folders.push(['rclone mount', await mountByRclone(lifetime, local)]);
    return {
      subject: { names: POOL_TASKS.original },
      contestants: folders.flatMap(([name, folder]) => [first(name, folder), repeated(name, folder)]),
      goals: [
        { contestant: 'tmaxfs, first', reference: 'ext4, first', atMost: FIRST_AT_MOST },
        { contestant: 'tmaxfs, repeated', reference: 'ext4, repeated', atMost: REPEATED_AT_MOST },
      ],
      teardown: () => lifetime.end(),
    };
  },
};

function first(name: string, folder: string): Contestant {
  return {
    name: `${name}, first`,
    run: async () => {
      // 2: names and inodes, not the page cache.
      writeFileSync('/proc/sys/vm/drop_caches', '2');
      return { seconds: await list(folder) };
    },
  };
}

function repeated(name: string, folder: string): Contestant {
  return {
    name: `${name}, repeated`,
    run: async () => {
      await list(folder);
      return { seconds: await list(folder) };
    },
  };
}

async function list(folder: string): Promise<number> {
  const startedMs = performance.now();
  const { stdout } = await execa('ls', ['-l', folder], { env: { LC_ALL: 'C' } });
  const seconds = (performance.now() - startedMs) / 1000;
  if (stdout.split('\n').length !== POOL_TASKS.original + 1) throw new Error(`${folder} is not listed whole`);
  return seconds;
}
