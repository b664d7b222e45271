/**
 * A pool of the published shape: three variants, 35,181 tasks, 16,203 images in five folders. The task map is a fixture
 * with made-up hashes; the listing is derived from it, the same on every run, with sizes in the published spread.
 */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { brotliDecompressSync } from 'node:zlib';
import type { TaskMap } from '../../src/demo/fake-hub-folder.js';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import { packagePath } from './paths.js';

export const POOL_IMAGES = 16_203;
/** Tasks of each variant. */
export const POOL_TASKS = { original: 14_601, hardened_prefilter: 13_565, solvable: 7_015 } as const;

const MIN_BYTES = 49_500_160;
const MEDIAN_BYTES = 112_000_000;
const MAX_BYTES = 3_449_798_656;
/** Images are padded to whole blocks of squashfs. */
const BLOCK_BYTES = 4096;
/** Spread of the log-normal part of a size, chosen so that the 99th percentile is near 490 MB. */
const SIGMA = 0.83;

/** The content of `task_to_blob.json`. */
export function poolTaskMapJson(): Buffer {
  const compressed = readFileSync(packagePath('test', 'fixtures', 'pool-scale', 'task_to_blob.json.br'));
  return brotliDecompressSync(compressed);
}

export function poolTaskMap(): TaskMap {
  const map: TaskMap = JSON.parse(poolTaskMapJson().toString());
  return map;
}

/** Every image as the listing has it, without content. The first and last by digest have the extreme sizes. */
export function poolImages(map: TaskMap = poolTaskMap()): FakeFile[] {
  const paths = [...new Set(Object.values(map).flatMap((tasks) => Object.values(tasks)))].sort();
  const files = paths.map((path) => {
    const digest = createHash('sha256').update(path).digest();
    return { path, sizeBytes: sizeOf(digest), sha256: digest.toString('hex'), lfs: true };
  });
  const [first, ...others] = files.sort((a, b) => (a.sha256 < b.sha256 ? -1 : 1));
  const last = others.pop();
  if (first === undefined || last === undefined) return [];
  return [{ ...first, sizeBytes: MIN_BYTES }, ...others, { ...last, sizeBytes: MAX_BYTES }];
}

/** The images and the task map: the files of a fake repository. */
export function poolFiles(): FakeFile[] {
  return [...poolImages(), fileOf('task_to_blob.json', poolTaskMapJson(), { lfs: false })];
}

/** A size from a shifted log-normal distribution; the digest is the seed. */
function sizeOf(digest: Buffer): number {
  const [u, v] = [uniform(digest, 0), uniform(digest, 6)];
  const normal = Math.sqrt(-2 * Math.log(u)) * Math.cos(2 * Math.PI * v);
  const bytes = MIN_BYTES + (MEDIAN_BYTES - MIN_BYTES) * Math.exp(SIGMA * normal);
  return Math.min(MAX_BYTES, Math.ceil(bytes / BLOCK_BYTES) * BLOCK_BYTES);
}

/** A number in (0, 1) from 48 bits. */
function uniform(digest: Buffer, offset: number): number {
  return (digest.readUIntBE(offset, 6) + 0.5) / 2 ** 48;
}
