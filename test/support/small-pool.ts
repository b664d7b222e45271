/** A pool of a few small images, with their content. */

import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import type { MountedPoolOptions } from './mounted-pool.js';
import { tinyImage } from './sif-writer.js';

/** A pool of `count` small images; task `t<n>` of variant `v` is the image `images/<n>.sif`. */
export function smallPool(
  count: number,
  payloadBytes = 200_000,
): Pick<MountedPoolOptions, 'files' | 'tasks'> & { files: FakeFile[] } {
  const files = Array.from({ length: count }, (_, seed) => fileOf(`images/${seed}.sif`, tinyImage(seed, payloadBytes)));
  return { files, tasks: { v: Object.fromEntries(files.map(({ path }, seed) => [`t${seed}`, path])) } };
}

export function contentOf(file: FakeFile | undefined): Buffer {
  if (!Buffer.isBuffer(file?.body)) throw new Error('the file has no content in memory');
  return file.body;
}
