/** Opening and closing an image that is on disk and proven, through the real daemon. */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import { MountedPool } from '../test/support/mounted-pool.js';
import { overlayFolder } from '../test/support/overlay.js';
import { smallPool } from '../test/support/small-pool.js';
import type { Bench, Contestant, Goal } from './bench.js';
import { BenchLifetime } from './support/lifetime.js';
import { openAndClose } from './support/opener.js';
import { hasRclone, mountByRclone } from './support/rclone.js';
import { residentBytes } from './support/resident.js';

const RUN_SECONDS = 2;
const OPENERS = 64;
const ALONE_AT_MOST_SECONDS = 100e-6;
const TOGETHER_AT_MOST_SECONDS = 1 / 20_000;
const OURS = 'tmaxfs, passthrough';

export const opening: Bench = {
  name: 'open',
  description: 'open and close of an image on disk by one program (seconds for one, median)',
  setup: () =>
    stage([{ contestant: OURS, atMost: ALONE_AT_MOST_SECONDS }], (name, path) => ({
      name,
      run: async () => ({ seconds: (await openAndClose(path, 1, RUN_SECONDS)).medianSeconds }),
    })),
};

export const openingTogether: Bench = {
  name: 'open-together',
  description: `open and close of an image on disk by ${OPENERS} programs (seconds for one, of all together)`,
  setup: () =>
    stage([{ contestant: OURS, atMost: TOGETHER_AT_MOST_SECONDS }], (name, path) => ({
      name,
      run: async () => ({ seconds: RUN_SECONDS / (await openAndClose(path, OPENERS, RUN_SECONDS)).count }),
    })),
};

async function stage(goals: readonly Goal[], contestant: (name: string, path: string) => Contestant) {
  const lifetime = new BenchLifetime();
  const passthrough = await readyPool(lifetime);
  const cached = join(passthrough.cacheDirectory, 'blobs');
  const { stdout: local } = await execa('find', [cached, '-type', 'f']);
  const relayed = await readyPool(lifetime, { cacheDirectory: join(await overlayFolder(lifetime), 'cache') });
  const library = await readyPool(lifetime, { args: ['--driver', 'fuse-native'] });
  const paths: [string, string][] = [
    ['local file', local],
    [OURS, passthrough.path('v/t0.sif')],
    ['tmaxfs, relayed', relayed.path('v/t0.sif')],
    ['tmaxfs, fuse-native', library.path('v/t0.sif')],
  ];
  if (hasRclone) {
    const folder = await mountByRclone(lifetime, join(local, '..'));
    paths.push(['rclone mount', join(folder, readdirSync(folder)[0] ?? '')]);
  }
  return {
    subject: {},
    contestants: paths.map(([name, path]) => contestant(name, path)),
    goals,
    teardown: () => lifetime.end(),
  };
}

/** A mount with one image, which is on disk. */
async function readyPool(
  lifetime: BenchLifetime,
  options: { readonly cacheDirectory?: string; readonly args?: readonly string[] } = {},
): Promise<MountedPool> {
  const pool = await MountedPool.start(lifetime, { ...smallPool(1), ...options });
  const { exitCode } = await pool.run('cat', [pool.path('v/t0.sif')]);
  if (exitCode !== 0) throw new Error('the image can’t be read');
  return pool;
}

const FIRST_CALLS = 100_000;
const ALL_CALLS = 1_000_000;
/** What V8 may keep more of after a million than after the first hundred thousand. */
const GROWTH_AT_MOST = 1.15;
/** Names that are not there are asked for each time; a file is opened in between. */
const CALLS = `
import os, sys
path, count = sys.argv[1], int(sys.argv[2])
folder = os.path.dirname(path)
for number in range(count):
    os.access(f'{folder}/{number}', os.R_OK)
    os.close(os.open(path, os.O_RDONLY))`;

export const lasting: Bench = {
  name: 'million',
  description: 'memory of the daemon after many lookups and opens (seconds for a lookup and an open)',
  maxRounds: 1,
  setup: async () => {
    const lifetime = new BenchLifetime();
    const pool = await readyPool(lifetime);
    const { pid } = await pool.status();
    const descriptors = () => readdirSync(`/proc/${pid}/fd`).length;
    const before = descriptors();
    const names = [`after ${FIRST_CALLS}`, `after ${ALL_CALLS}`] as const;
    const calls = (name: string, count: number): Contestant => ({
      name,
      run: async () => {
        const startedMs = performance.now();
        await execa('python3', ['-c', CALLS, pool.path('v/t0.sif'), String(count)]);
        const seconds = (performance.now() - startedMs) / 1000 / count;
        const after = descriptors();
        if (after > before) throw new Error(`${after} descriptors are open, ${before} were before`);
        return { seconds, peakBytes: residentBytes(pid) };
      },
    });
    return {
      subject: { descriptors: before },
      contestants: [calls(names[0], FIRST_CALLS), calls(names[1], ALL_CALLS - FIRST_CALLS)],
      goals: [{ contestant: names[1], reference: names[0], of: 'peakBytes', atMost: GROWTH_AT_MOST }],
      teardown: () => lifetime.end(),
    };
  },
};
