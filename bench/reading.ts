/**
 * Reading one large file, by fio: from the local disk, through our driver with and without passthrough, through fuse-native
 * and through `rclone mount`. All of it lies in the page cache of the disk. The kernel's own cache of a relayed file is
 * dropped before each run (fio's `invalidate`): with it, every second read would be the local file's for each of them.
 */

import { createHash, randomFillSync } from 'node:crypto';
import { closeSync, openSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import * as v from 'valibot';
import { MountServer, temporaryDirectory } from '../test/support/mount-client.js';
import type { Bench, Contestant, Goal, Stage } from './bench.js';
import { BenchLifetime } from './support/lifetime.js';
import { hasRclone, mountByRclone } from './support/rclone.js';

const MIB = 1024 * 1024;
const FILE_BYTES = 1024 * MIB;

interface Workload {
  readonly name: string;
  readonly description: string;
  /** What the seconds are of. */
  readonly unitBytes: number;
  readonly options: readonly string[];
  /** How much is read of a file in the page cache, and of one that is relayed: about as long, and no byte twice. */
  readonly cachedOptions: readonly string[];
  readonly relayedOptions: readonly string[];
}

const workloads: readonly Workload[] = [
  {
    name: 'sequential',
    description: '1 MiB after another (seconds for 1 MiB)',
    unitBytes: MIB,
    options: ['--ioengine=psync', '--rw=read', '--bs=1m'],
    cachedOptions: ['--loops=8'],
    relayedOptions: [],
  },
  {
    name: 'random',
    description: '4 KiB anywhere (seconds for one)',
    unitBytes: 4096,
    options: ['--ioengine=psync', '--rw=randread', '--bs=4k'],
    cachedOptions: ['--loops=2'],
    relayedOptions: ['--number_ios=50000'],
  },
  {
    name: 'mmap',
    description: '4 KiB anywhere in a mapped file (seconds for one)',
    unitBytes: 4096,
    options: ['--ioengine=mmap', '--rw=randread', '--bs=4k'],
    cachedOptions: ['--loops=2'],
    relayedOptions: ['--number_ios=50000'],
  },
  {
    name: 'threads',
    description: '128 KiB anywhere by 4 threads (seconds for 1 MiB in all)',
    unitBytes: MIB,
    options: ['--ioengine=psync', '--rw=randread', '--bs=128k', '--thread', '--numjobs=4', '--group_reporting'],
    cachedOptions: ['--loops=2'],
    relayedOptions: ['--number_ios=2000'],
  },
];

/** At least 0.95 times as fast as the local file. */
const PASSTHROUGH_AT_MOST = 1 / 0.95;
/** At least so many times as fast as fuse-native. */
const RELAYED_SPEEDUP: Readonly<Record<string, number>> = { random: 2, sequential: 1.5 };

export const readingBenches: readonly Bench[] = workloads.map((workload) => ({
  name: `read-${workload.name}`,
  description: workload.description,
  setup: () => setUp(workload),
}));

async function setUp(workload: Workload): Promise<Stage> {
  const lifetime = new BenchLifetime();
  const { directory } = await temporaryDirectory((undo) => lifetime.teardown(undo));
  const folder = join(directory, 'files');
  await execa('mkdir', [folder]);
  const local = join(folder, 'one.sif');
  const sha256 = writeRandomFile(local);
  const peers: [string, string][] = [
    ['kernel driver, passthrough', await mountByUs(lifetime, local, 'kernel', 'auto')],
    ['kernel driver, relayed', await mountByUs(lifetime, local, 'kernel', 'off')],
    ['fuse-native', await mountByUs(lifetime, local, 'fuse-native', 'off')],
  ];
  if (hasRclone) peers.push(['rclone mount', join(await mountByRclone(lifetime, folder), 'one.sif')]);
  for (const [name, path] of peers) {
    const { stdout } = await execa('sha256sum', [path]);
    if (!stdout.startsWith(sha256)) throw new Error(`${name} shows another content`);
  }
  const names = peers.map(([name]) => name);
  return {
    subject: { bytes: FILE_BYTES, cache: 'hot on disk, empty of relayed files' },
    contestants: [fio('local file', local, workload), ...peers.map(([name, path]) => fio(name, path, workload))],
    goals: goalsOf(workload.name, names),
    teardown: () => lifetime.end(),
  };
}

function goalsOf(workload: string, names: readonly string[]): readonly Goal[] {
  const relayed = { contestant: 'kernel driver, relayed' };
  const speedup = RELAYED_SPEEDUP[workload];
  return [
    { contestant: 'kernel driver, passthrough', reference: 'local file', atMost: PASSTHROUGH_AT_MOST },
    ...(speedup === undefined ? [] : [{ ...relayed, reference: 'fuse-native', atMost: 1 / speedup }]),
    ...(names.includes('rclone mount') ? [{ ...relayed, reference: 'rclone mount', atMost: 1 }] : []),
  ];
}

function writeRandomFile(path: string): string {
  const descriptor = openSync(path, 'w');
  const hash = createHash('sha256');
  const chunk = Buffer.alloc(MIB);
  for (let written = 0; written < FILE_BYTES; written += chunk.length) {
    randomFillSync(chunk);
    hash.update(chunk);
    writeSync(descriptor, chunk);
  }
  closeSync(descriptor);
  return hash.digest('hex');
}

async function mountByUs(
  lifetime: BenchLifetime,
  source: string,
  driver: 'kernel' | 'fuse-native',
  passthrough: 'auto' | 'off',
): Promise<string> {
  const { mountpoint } = await temporaryDirectory((undo) => lifetime.teardown(undo));
  const server = new MountServer('root');
  lifetime.teardown(() => server.kill());
  const files = [{ path: 'one.sif', source }];
  await server.start({ mountpoint, fsName: 'bench', allowOther: false, driver, passthrough, readThreads: 2, files });
  return join(mountpoint, 'one.sif');
}

const Report = v.object({
  jobs: v.tuple([v.object({ error: v.literal(0), read: v.object({ io_bytes: v.number(), runtime: v.number() }) })]),
});

function fio(name: string, path: string, workload: Workload): Contestant {
  const isCached = name === 'local file' || name.endsWith('passthrough');
  const options = [
    ...['--name=reader', `--filename=${path}`, '--readonly', '--gtod_reduce=1', '--output-format=json'],
    `--invalidate=${isCached ? 0 : 1}`,
    ...workload.options,
    ...(isCached ? workload.cachedOptions : workload.relayedOptions),
  ];
  return {
    name,
    run: async () => {
      const { stdout } = await execa('fio', options);
      const {
        jobs: [{ read }],
      } = v.parse(Report, JSON.parse(stdout));
      return { seconds: (read.runtime / 1000) * (workload.unitBytes / read.io_bytes) };
    },
  };
}
