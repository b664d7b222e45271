/** A file system of its own in memory, whose use the kernel tells at any moment, deleted files that are open included. */

import { statfsSync } from 'node:fs';
import { execa } from 'execa';
import { type Lifetime, temporaryFolder } from './temporary.js';

export interface MemoryDisk {
  readonly path: string;
  usedBytes(): number;
}

export async function memoryDisk(lifetime: Lifetime, sizeBytes: number): Promise<MemoryDisk> {
  const path = temporaryFolder(lifetime);
  await execa('mount', ['-t', 'tmpfs', '-o', `size=${sizeBytes},mode=0755`, 'tmpfs', path]);
  lifetime.teardown(() => execa('umount', ['-l', path]).then(() => undefined));
  return {
    path,
    usedBytes: () => {
      const { blocks, bfree, bsize } = statfsSync(path);
      return (blocks - bfree) * bsize;
    },
  };
}
