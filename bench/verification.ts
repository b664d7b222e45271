/** What proving a large image costs, each time in a process of its own, against unsquashfs, which reads it all as well. */

import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import * as v from 'valibot';
import type { VerifyLevel } from '../src/verify/verdict.js';
import { supportProgram } from '../test/support/paths.js';
import type { Bench, Contestant, Figures } from './bench.js';
import { type LargeImage, largeImage } from './support/large-image.js';

/** Reading and decompressing alone, so that it may well be done in as much time as by the tool that everybody uses. */
const DEEP_AT_MOST = 1.3;
const THREADS = [1, 2] as const;

const Proof = v.object({ outcome: v.literal('valid'), elapsedMs: v.number(), peakBytes: v.number() });

export const verification: Bench = {
  name: 'verification',
  description: 'the levels of verification on one large image, page cache warm',
  setup: async () => {
    const image = largeImage();
    const partitionOffset = await findPartition(image);
    return {
      subject: { image: 'gzip squashfs', bytes: image.sizeBytes, inodes: image.inodes },
      contestants: [
        ours('header', image, 'header'),
        ours('structure', image, 'structure'),
        sha256(image),
        ...THREADS.flatMap((threads) => [
          ours(deep(threads), image, 'deep', threads),
          unsquashfs(image, partitionOffset, threads),
        ]),
      ],
      goals: THREADS.map((threads) => ({
        contestant: deep(threads),
        reference: `unsquashfs -p ${threads}`,
        atMost: DEEP_AT_MOST,
      })),
      teardown: async () => {},
    };
  },
};

function deep(threads: number): string {
  return `deep, ${threads} thread${threads === 1 ? '' : 's'}`;
}

/** Time of the proof itself, without that of starting Node, but with that of starting threads; without `threads` in none. */
function ours(name: string, { path }: LargeImage, level: VerifyLevel, threads?: number): Contestant {
  return {
    name,
    run: async () => {
      const words = [path, level, ...(threads === undefined ? [] : [String(threads)])];
      const { stdout } = await execa(process.execPath, [supportProgram('verify-once'), ...words]);
      const { elapsedMs, peakBytes } = v.parse(Proof, JSON.parse(stdout));
      return { seconds: elapsedMs / 1000, peakBytes };
    },
  };
}

function sha256({ path }: LargeImage): Contestant {
  return { name: 'sha256sum', run: () => timed('sha256sum', [path]) };
}

/** Extracts into memory: faster than any other way in which unsquashfs reads all. Removing the files is not counted. */
function unsquashfs({ path }: LargeImage, offset: number, threads: number): Contestant {
  return {
    name: `unsquashfs -p ${threads}`,
    run: async () => {
      const work = await mkdtemp('/dev/shm/tmaxfs-bench-');
      const options = ['-quiet', '-no-progress', '-o', String(offset), '-p', String(threads), '-d', join(work, 'root')];
      try {
        return await timed('unsquashfs', [...options, path]);
      } finally {
        await rm(work, { recursive: true });
      }
    },
  };
}

async function timed(file: string, args: readonly string[]): Promise<Figures> {
  const started = performance.now();
  await execa(file, [...args], { stdin: 'ignore', stdout: 'ignore' });
  return { seconds: (performance.now() - started) / 1000 };
}

async function findPartition({ path }: LargeImage): Promise<number> {
  const { stdout } = await execa('grep', ['--byte-offset', '--only-matching', '--text', '--max-count=1', 'hsqs', path]);
  return Number(stdout.split(':')[0]);
}
