/** A `BlobCache` over a temporary folder, with a source and a prover under the test's control. */

import { createHash } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { fstatSync, readFileSync, readSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { BlobCache, type BlobCacheOptions, type Lease } from '../../src/blobs/blob-cache.js';
import { BlobStore } from '../../src/blobs/blob-store.js';
import { TmaxError } from '../../src/errors.js';
import type { Patience } from '../../src/sources/patience.js';
import type { BlobAddress, Download, DownloadOptions, Source } from '../../src/sources/source.js';
import { SourceHealth } from '../../src/sources/source-health.js';
import { flipBit } from './bit-rot.js';
import { recordingLog } from './hub.js';
import { provingAfterwards } from './proving-afterwards.js';
import { type Lifetime, temporaryFolder } from './temporary.js';

export interface Blob {
  readonly address: BlobAddress;
  readonly content: Buffer;
}

export function blobOf(seed: string, sizeBytes = 1000, content: Buffer = Buffer.alloc(sizeBytes, `${seed}.`)): Blob {
  const sha256 = createHash('sha256').update(content).digest('hex');
  return {
    content,
    address: { repository: 'o/p', commit: 'c'.repeat(40), path: `${seed}.sif`, sha256, sizeBytes: content.length },
  };
}

/** A source under the test's control: holds what it is given, can be held back, and can lie. */
export class TestSource extends EventEmitter implements Source {
  readonly contents = new Map<string, Buffer>();
  readonly downloads: string[] = [];
  failure: TmaxError | undefined;
  health = new SourceHealth();
  perseveres = false;
  /** How each download was asked for. */
  readonly patience: (Patience | undefined)[] = [];
  /** Awaited before the bytes are written. */
  gate: Promise<void> = Promise.resolve();

  constructor(readonly name = 'test') {
    super();
  }

  async download(address: BlobAddress, partialPath: string, options: DownloadOptions): Promise<Download> {
    this.downloads.push(address.path);
    this.patience.push(options.patience);
    this.emit('download', address.path);
    const aborted = new Promise<never>((_resolve, reject) => {
      const abort = () => reject(new TmaxError('EINTR', 'aborted'));
      options.signal.addEventListener('abort', abort, { once: true });
      if (options.signal.aborted) abort();
    });
    await Promise.race([this.gate, aborted]);
    if (this.failure !== undefined) throw this.failure;
    const content = this.contents.get(address.sha256) ?? Buffer.alloc(0);
    writeFileSync(partialPath, content);
    options.onProgress?.(content.length);
    const sha256 = createHash('sha256').update(content).digest('hex');
    return { sizeBytes: content.length, sha256, resumedBytes: 0, attempts: 1 };
  }

  async close(): Promise<void> {}
}

type Overrides = Partial<Omit<BlobCacheOptions, 'store'>> & { readonly root?: string; readonly isShared?: boolean };

export async function setUp(t: Lifetime, overrides: Overrides = {}) {
  const root = overrides.root ?? temporaryFolder(t);
  const source = new TestSource();
  const { log, lines } = recordingLog();
  const verdicts = {
    reason: undefined as string | undefined,
    architecture: 'amd64',
    failure: undefined as TmaxError | undefined,
    calls: [] as string[],
  };
  const prover = provingAfterwards({
    verify: async (path, expectation, level) => {
      verdicts.calls.push(path);
      if (verdicts.failure !== undefined) throw verdicts.failure;
      const content = readFileSync(path);
      const digest = expectation.computedSha256 ?? createHash('sha256').update(content).digest('hex');
      const isWhole = content.length === expectation.sizeBytes && digest === expectation.sha256;
      const message = verdicts.reason ?? (isWhole ? undefined : 'not what it was');
      if (message !== undefined) return { outcome: 'invalid', level, finding: { code: 'test', message } };
      return { outcome: 'valid', level, architecture: verdicts.architecture, warnings: [] };
    },
  });
  const store = await BlobStore.open(root, { isShared: overrides.isShared ?? false });
  const cache = await BlobCache.open({
    store,
    limits: { limitBytes: 100 * 2 ** 20, reserveFreeBytes: 0, leasePatienceMs: 20 },
    sources: [source],
    prover,
    verifierVersion: 1,
    level: 'structure',
    openTimeoutMs: 100_000,
    maxFetches: 4,
    architecture: { served: 'any', host: 'amd64' },
    log,
    ...overrides,
  });
  t.teardown(() => cache.close());
  const add = (blob: Blob) => source.contents.set(blob.address.sha256, blob.content);
  const open = async (blob: Blob, signal = new AbortController().signal): Promise<Lease> =>
    await cache.open(blob.address, { variant: 'v', task: blob.address.path }, signal);
  return { root, source, store, cache, prover, verdicts, lines, add, open };
}

/** Whether the lease reads as the blob's content, whole. (ava's deepEqual takes half a second for a MiB.) */
export function holds(lease: Lease, blob: Blob): boolean {
  const content = Buffer.alloc(fstatSync(lease.descriptor).size);
  readSync(lease.descriptor, content, 0, content.length, 0);
  return content.equals(blob.content);
}

export const blobPath = (root: string, { address }: Blob) =>
  join(root, 'blobs', address.sha256.slice(0, 2), address.sha256);
export const errnoOf = async (t: ExecutionContext, act: () => unknown) =>
  (await t.throwsAsync(async () => void (await act()), { instanceOf: TmaxError }))?.errno;

export function rot(root: string, blob: Blob, atByte = 500): void {
  flipBit(blobPath(root, blob), atByte);
}

export const proofPath = (root: string, { address }: Blob) =>
  join(root, 'proofs', address.sha256.slice(0, 2), address.sha256);
