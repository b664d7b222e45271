/** The pool that `tmaxfs demo` serves: two real images of this package, and one that was damaged before it was published. */

import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { taskMapFile } from './fake-hub-folder.js';
import { type FakeFile, type FakeRepository, fileOf, repositoryOf } from './fake-hub-repository.js';

/** Images of this package; this file is compiled to build/src/demo/. */
const IMAGES = new URL('../../../src/demo/images/', import.meta.url);
const SQUASHFS_MAGIC = Buffer.from('hsqs');
const SUPERBLOCK_BYTES = 96;

export interface DemoTask {
  /** Path below the mount point. */
  readonly name: string;
  /** Path in the repository. */
  readonly path: string;
  readonly sha256: string;
  readonly sizeBytes: number;
}

export interface DemoPool {
  readonly served: FakeRepository;
  readonly tasks: { readonly sound: DemoTask; readonly interrupted: DemoTask; readonly damaged: DemoTask };
}

/** Errors: those of reading the package's own images. */
export async function demoPool(): Promise<DemoPool> {
  const gzip = await readFile(fileURLToPath(new URL('tiny-gzip.sif', IMAGES)));
  const zstd = await readFile(fileURLToPath(new URL('tiny-zstd.sif', IMAGES)));
  const sound = fileOf('images/demo__swerl-demo__0a1b2c3d4e5f.sif', gzip);
  const interrupted = fileOf('images_b00/demo__swerl-demo__1b2c3d4e5f60.sif', zstd);
  const damaged = fileOf('images_b00/demo__swerl-demo__2c3d4e5f6071.sif', withoutSuperblock(gzip));
  const map = taskMapFile({
    original: { task_000001_hello: sound.path, task_000002_cut: interrupted.path, task_000003_broken: damaged.path },
    solvable: { task_000001_hello: sound.path },
  });
  return {
    served: repositoryOf('demo/image-pool', [map, sound, interrupted, damaged]),
    tasks: {
      sound: taskOf('solvable/task_000001_hello.sif', sound),
      interrupted: taskOf('original/task_000002_cut.sif', interrupted),
      damaged: taskOf('original/task_000003_broken.sif', damaged),
    },
  };
}

function taskOf(name: string, { path, sha256, sizeBytes }: FakeFile): DemoTask {
  return { name, path, sha256, sizeBytes };
}

function withoutSuperblock(image: Buffer): Buffer {
  const damaged = Buffer.from(image);
  const start = damaged.indexOf(SQUASHFS_MAGIC);
  damaged.fill(0, start, start + SUPERBLOCK_BYTES);
  return damaged;
}
