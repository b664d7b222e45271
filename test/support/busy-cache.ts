/**
 * A process with a real cache on a real directory, made to be killed: opens, reads, closes, prefetches and calls off at
 * random, several at a time, in a cache too small for them. It says what it finds wrong, and goes on until it is killed.
 */

import { createHash } from 'node:crypto';
import { fstatSync, readdirSync, readSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import { BlobCache, type Lease } from '../../src/blobs/blob-cache.js';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { TmaxError } from '../../src/errors.js';
import type { BlobAddress } from '../../src/sources/source.js';
import { verifyImage } from '../../src/verify/verify.js';
import { FolderSource } from './folder-source.js';
import { provingAfterwards } from './proving-afterwards.js';
import { Random } from './random.js';

export interface CacheTask {
  readonly root: string;
  /** Folder with the content of all images, by their paths. */
  readonly pool: string;
  readonly images: readonly [BlobAddress, ...BlobAddress[]];
  readonly limitBytes: number;
  /** No other process uses the cache: what it counts is what there is. Else that is what it has last seen of the others. */
  readonly isAlone: boolean;
  readonly seed: number;
  /** `load`: at random, until it is killed. `all`: opens every image once, closes the cache and ends. */
  readonly kind: 'load' | 'all';
}

export type CacheReport =
  | { readonly kind: 'loaded' }
  | { readonly kind: 'open' }
  /** What a fetch found of its blob on disk. */
  | { readonly kind: 'resumed'; readonly sha256: string; readonly resumedBytes: number }
  | { readonly kind: 'wrong'; readonly words: string };

const WORKERS = 4;
const MAX_PIECE_BYTES = 32 * 1024;
/** How long an image is held open, and an open waited for, at most. */
const MAX_HELD_MS = 10;
const MAX_PATIENCE_MS = 20;
/** No room while others hold what there is, and having been called off, are right answers. */
const RIGHT_ERRORS: readonly string[] = ['ENOSPC', 'EINTR'];

function report(message: CacheReport): void {
  process.send?.(message);
}

function digestOf({ descriptor }: Lease): string {
  const content = Buffer.alloc(fstatSync(descriptor).size);
  readSync(descriptor, content, 0, content.length, 0);
  return createHash('sha256').update(content).digest('hex');
}

class Load {
  readonly #task: CacheTask;
  readonly #cache: BlobCache;
  readonly #random: Random;

  constructor(task: CacheTask, cache: BlobCache, random: Random) {
    this.#task = task;
    this.#cache = cache;
    this.#random = random;
  }

  async open(address: BlobAddress, signal: AbortSignal): Promise<void> {
    const lease = await this.#cache.open(address, { variant: 'v', task: address.path }, signal);
    try {
      const digest = digestOf(lease);
      if (digest !== address.sha256) report({ kind: 'wrong', words: `${address.path} was served with ${digest}` });
      await delay(this.#random.below(MAX_HELD_MS));
      if (digestOf(lease) !== digest) report({ kind: 'wrong', words: `${address.path} changed while it was open` });
    } finally {
      lease.release();
    }
    if (!this.#task.isAlone) return;
    const { usedBytes } = this.#cache.statistics().use;
    if (usedBytes > this.#task.limitBytes) report({ kind: 'wrong', words: `${usedBytes} bytes are counted` });
  }

  async forEver(): Promise<never> {
    for (;;) {
      const address = this.#random.pick(this.#task.images);
      const controller = new AbortController();
      const patience = setTimeout(
        () => controller.abort(),
        this.#random.below(2) * this.#random.below(MAX_PATIENCE_MS),
      );
      if (this.#random.below(2) === 0) clearTimeout(patience);
      try {
        if (this.#random.below(4) > 0) await this.open(address, controller.signal);
        else await this.#bring(address, controller.signal);
      } catch (error) {
        if (error instanceof TmaxError && RIGHT_ERRORS.includes(error.errno)) continue;
        report({ kind: 'wrong', words: `${address.path}: ${error instanceof Error ? error.stack : error}` });
      } finally {
        clearTimeout(patience);
      }
    }
  }

  async #bring(address: BlobAddress, signal: AbortSignal): Promise<void> {
    const keep = new Set([this.#random.pick(this.#task.images).sha256]);
    await this.#cache.bring(address, { variant: 'v', task: address.path }, signal, keep);
  }
}

async function run(task: CacheTask): Promise<void> {
  const random = new Random(task.seed);
  const source = new FolderSource(task.pool, {
    pieceBytes: () => 1 + random.below(MAX_PIECE_BYTES),
    onResumed: (sha256, resumedBytes) => report({ kind: 'resumed', sha256, resumedBytes }),
  });
  const store = await BlobStore.open(task.root);
  const [partial] = readdirSync(store.layout.partials).sort();
  const cache = await BlobCache.open({
    store,
    limits: { limitBytes: task.limitBytes, reserveFreeBytes: 0, leasePatienceMs: 50 },
    sources: [source],
    prover: provingAfterwards({ verify: verifyImage }),
    verifierVersion: 1,
    level: 'structure',
    openTimeoutMs: 60_000,
    maxFetches: 3,
    architecture: { served: 'any', host: 'amd64' },
    log: pino({ level: 'silent' }),
  });
  report({ kind: 'open' });
  const load = new Load(task, cache, random);
  // First what an earlier one has not finished.
  const begun = task.images.find(({ sha256 }) => sha256 === partial);
  if (begun !== undefined) await load.open(begun, new AbortController().signal);
  if (task.kind === 'load') await Promise.all(Array.from({ length: WORKERS }, () => load.forEver()));
  for (const address of task.images) await load.open(address, new AbortController().signal);
  await cache.close();
}

process.once('message', (task: CacheTask) => {
  run(task).then(
    () => process.disconnect(),
    (error: unknown) => {
      report({ kind: 'wrong', words: `it ended: ${error instanceof Error ? error.stack : error}` });
      process.disconnect();
    },
  );
});
report({ kind: 'loaded' });
