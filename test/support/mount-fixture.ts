/** A mounted file system with files of every behaviour, for the conformance tests and others. */

import { createHash, randomBytes } from 'node:crypto';
import { chmod, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MemoryFile } from './memory-file-system.js';
import { type Defer, MountServer, type MountServerConfig, temporaryDirectory, type User } from './mount-client.js';

export interface MountVariant {
  readonly user: User;
  readonly driver: 'kernel' | 'fuse-native';
  readonly passthrough: 'auto' | 'off';
}

/** Whether the kernel reads the files by itself. */
export function passesThrough({ user, driver, passthrough }: MountVariant): boolean {
  return user === 'root' && driver === 'kernel' && passthrough === 'auto';
}

export interface MountFixture {
  readonly directory: string;
  readonly mountpoint: string;
  readonly server: MountServer;
  readonly config: MountServerConfig;
  /** The local file behind easy/sparse.sif: zeros, and `SPARSE_END`. */
  readonly sparseSource: string;
  /** The local file behind easy/one.sif and hard/same.sif. */
  readonly source: string;
  /** The digest of that file. */
  readonly sha256: string;
}

export const SOURCE_BYTES = 3_000_001;
/** As large as the largest image of the published pool. */
export const SPARSE_BYTES = 3_449_798_656;
/** What lies at the end of easy/sparse.sif, past 2 GiB. */
export const SPARSE_END = 'the end of a large file';

/** Mounts; everything is undone by what `defer` gets. */
export async function mountedFixture(defer: Defer, variant: MountVariant): Promise<MountFixture> {
  const { directory, mountpoint } = await temporaryDirectory(defer);
  // What udev does wherever it runs; a test machine may have none.
  if (variant.user === 'ordinary') await chmod('/dev/fuse', 0o666);
  const content = randomBytes(SOURCE_BYTES);
  const source = join(directory, 'source');
  await writeFile(source, content);
  const { driver, passthrough } = variant;
  const config: MountServerConfig = {
    ...{ mountpoint, fsName: 'tmax-pool', allowOther: false, driver, passthrough, readThreads: 2 },
    files: await files(directory, source),
  };
  const server = new MountServer(variant.user);
  defer(() => server.kill());
  await server.start(config);
  const sparseSource = join(directory, 'sparse');
  return {
    directory,
    mountpoint,
    server,
    config,
    source,
    sparseSource,
    sha256: createHash('sha256').update(content).digest('hex'),
  };
}

async function files(directory: string, source: string): Promise<readonly MemoryFile[]> {
  const sparse = join(directory, 'sparse');
  const handle = await open(sparse, 'w');
  await handle.write(SPARSE_END, SPARSE_BYTES - SPARSE_END.length);
  await handle.close();
  const small = join(directory, 'small');
  await writeFile(small, 'small');
  return [
    { path: 'easy/one.sif', source },
    { path: 'easy/sparse.sif', source: sparse },
    { path: 'easy/slow.sif', source: small, behaviour: 'waits' },
    { path: 'easy/broken.sif', source: small, behaviour: 'fails' },
    { path: 'hard/same.sif', source },
  ];
}
