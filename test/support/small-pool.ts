/** A pool of small images of distinct content. */

import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import { tinyImage } from './sif-writer.js';

export interface SmallPool {
  readonly files: readonly FakeFile[];
  readonly tasks: { readonly v: Readonly<Record<string, string>> };
}

/** Task `t<n>` of variant `v` is the image `images/<n>.sif`, from `firstSeed` on. */
export function smallPool(count: number, payloadBytes = 200_000, firstSeed = 0): SmallPool {
  const seeds = Array.from({ length: count }, (_, index) => firstSeed + index);
  const files = seeds.map((seed) => fileOf(`images/${seed}.sif`, tinyImage(seed, payloadBytes)));
  return { files, tasks: { v: Object.fromEntries(seeds.map((seed) => [`t${seed}`, `images/${seed}.sif`])) } };
}

export function contentOf(file: FakeFile | undefined): Buffer {
  if (!Buffer.isBuffer(file?.body)) throw new Error('the file has no content in memory');
  return file.body;
}
