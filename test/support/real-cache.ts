/** A real cache on a real directory, with what is held open of it, and a clock: for tests against a model. */

import { createHash } from 'node:crypto';
import { closeSync, fstatSync, readdirSync, readSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { pino } from 'pino';
import { BlobCache, type Lease } from '../../src/blobs/blob-cache.js';
import { BlobStore } from '../../src/blobs/blob-store.js';
import type { BlobAddress } from '../../src/sources/source.js';
import { FolderSource } from './folder-source.js';
import { provingAfterwards } from './proving-afterwards.js';

/** A file takes whole blocks: with sizes in blocks all bytes can be counted exactly. */
export const BLOCK_BYTES = 4096;
export interface PoolOfImages {
  readonly folder: string;
  readonly images: readonly BlobAddress[];
}

/** A real cache, and what is held open of it. */
export class RealCache {
  cache!: BlobCache;
  readonly leases: { readonly image: number; readonly lease: Lease }[] = [];
  /** Of each fetch since the last look, what was gone on from. */
  fetches: number[] = [];

  constructor(
    readonly root: string,
    readonly pool: PoolOfImages,
  ) {}

  async start(limitBytes: number): Promise<void> {
    const source = new FolderSource(this.pool.folder, {
      pieceBytes: () => BLOCK_BYTES,
      onResumed: (_sha256, resumedBytes) => this.fetches.push(resumedBytes),
    });
    this.cache = await BlobCache.open({
      store: await BlobStore.open(this.root),
      limits: { limitBytes, reserveFreeBytes: 0, leasePatienceMs: 1 },
      sources: [source],
      prover: provingAfterwards({
        verify: async (_path, _expectation, level) => ({
          outcome: 'valid',
          level,
          architecture: 'amd64',
          warnings: [],
        }),
      }),
      verifierVersion: 1,
      level: 'structure',
      openTimeoutMs: 100_000,
      maxFetches: 2,
      architecture: { served: 'any', host: 'amd64' },
      log: pino({ level: 'silent' }),
    });
  }

  /** Ends as a process does: nothing is given back, and all that it had open is closed. */
  async end(): Promise<void> {
    await this.cache.close();
    for (const descriptor of new Set(this.leases.map(({ lease }) => lease.descriptor))) closeSync(descriptor);
    this.leases.length = 0;
  }

  /** Resolves when what was evicted by the way has gone: room is made in turn, for nothing too. */
  async settled(): Promise<void> {
    await this.cache.unpin([]);
  }

  address(image: number): BlobAddress {
    const address = this.pool.images[image];
    if (address === undefined) throw new Error(`there is no image ${image}`);
    return address;
  }

  blobPath(image: number): string {
    const { sha256 } = this.address(image);
    return join(this.root, 'blobs', sha256.slice(0, 2), sha256);
  }

  /** Images whose files lie in a folder of the cache. */
  lyingIn(folder: 'blobs' | 'partial'): number[] {
    const names = readdirSync(join(this.root, folder), { recursive: true, encoding: 'utf8' });
    const digests = new Set(names.map((name) => name.slice(-64)));
    return [...this.pool.images.keys()].filter((image) => digests.has(this.address(image).sha256));
  }
}

/** Of all that is to be read through a lease. */
export function digestOf({ descriptor }: Lease): string {
  const content = Buffer.alloc(fstatSync(descriptor).size);
  readSync(descriptor, content, 0, content.length, 0);
  return createHash('sha256').update(content).digest('hex');
}

/** Time, for both: seconds since the test began. */
export interface Clock {
  set(seconds: number): void;
}

/** Takes the place of `Date.now`, which is where the cache reads the time. */
export function bendTime(t: ExecutionContext): Clock {
  const { now } = Date;
  const startMs = Math.floor(now() / 1000) * 1000;
  t.teardown(() => {
    Date.now = now;
  });
  return {
    set: (seconds) => {
      Date.now = () => startMs + seconds * 1000;
    },
  };
}
