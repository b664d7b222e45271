/** What proving a large image costs, each time in a process of its own, against unsquashfs, which reads it all as well. */

import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { execa } from 'execa';
import * as v from 'valibot';
import type { VerifyLevel } from '../src/verify/verdict.js';
import { supportProgram } from '../test/support/paths.js';
import type { Bench, Contestant } from './bench.js';
import { type LargeImage, largeImage } from './support/large-image.js';
import { timed } from './support/timed.js';

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

/** Time of the proof itself, without starting Node (which the processor's time has in it); without `threads` in the main one. */
function ours(name: string, { path }: LargeImage, level: VerifyLevel, threads?: number): Contestant {
  return {
    name,
    run: async () => {
      const words = [path, level, ...(threads === undefined ? [] : [String(threads)])];
      const { stdout, figures } = await timed(process.execPath, [supportProgram('verify-once'), ...words]);
      const { elapsedMs, peakBytes } = v.parse(Proof, JSON.parse(stdout));
      return { ...figures, seconds: elapsedMs / 1000, peakBytes };
    },
  };
}

/** What hashing alone takes, in pieces as the proof reads them. */
function sha256({ path }: LargeImage): Contestant {
  const program = `
    const hash = require('node:crypto').createHash('sha256');
    const file = require('node:fs').openSync(process.argv[1], 'r');
    const piece = Buffer.alloc(1 << 20);
    for (let n; (n = require('node:fs').readSync(file, piece)) > 0; ) hash.update(piece.subarray(0, n));
    hash.digest();`;
  return { name: 'sha256', run: async () => (await timed(process.execPath, ['-e', program, path])).figures };
}

/** Extracts into memory: faster than any other way in which unsquashfs reads all. Removing the files is not counted. */
function unsquashfs({ path }: LargeImage, offset: number, threads: number): Contestant {
  return {
    name: `unsquashfs -p ${threads}`,
    run: async () => {
      const work = await mkdtemp('/dev/shm/tmaxfs-bench-');
      const options = ['-quiet', '-no-progress', '-o', String(offset), '-p', String(threads), '-d', join(work, 'root')];
      try {
        return (await timed('unsquashfs', [...options, path])).figures;
      } finally {
        await rm(work, { recursive: true });
      }
    },
  };
}

async function findPartition({ path }: LargeImage): Promise<number> {
  const { stdout } = await execa('grep', ['--byte-offset', '--only-matching', '--text', '--max-count=1', 'hsqs', path]);
  return Number(stdout.split(':')[0]);
}
