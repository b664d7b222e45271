/** The other side of `CacheProcess`. */

import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { Lease } from '../../src/blobs/blob-cache.js';
import { TmaxError } from '../../src/errors.js';
import type { BlobAddress, Download, DownloadOptions, Source } from '../../src/sources/source.js';
import { SourceHealth } from '../../src/sources/source-health.js';
import { blobOf, setUp } from './blob-cache.js';
import type { Answer, CacheProcessOptions, Order } from './shared-cache-process.js';

const PIECES = 8;

/** Brings what it is asked for piece by piece, and can be held half-way. */
class PieceSource implements Source {
  readonly name = 'pieces';
  readonly health = new SourceHealth();
  readonly contents = new Map<string, Buffer>();
  gate: Promise<void> | undefined;

  async download(address: BlobAddress, partialPath: string, options: DownloadOptions): Promise<Download> {
    const content = this.contents.get(address.sha256) ?? Buffer.alloc(0);
    const file = await open(partialPath, 'r+');
    try {
      const pieceBytes = Math.ceil(content.length / PIECES);
      for (let at = 0; at < content.length; at += pieceBytes) {
        if (options.signal.aborted) throw new TmaxError('EINTR', 'aborted');
        await file.write(content, at, Math.min(pieceBytes, content.length - at), at);
        options.onProgress?.(Math.min(content.length, at + pieceBytes));
        if (at + pieceBytes >= content.length / 2 && this.gate !== undefined) {
          process.send?.({ halfWay: address.path.replace('.sif', '') });
          await this.gate;
        }
        await delay(1);
      }
    } finally {
      await file.close();
    }
    const sha256 = createHash('sha256').update(content).digest('hex');
    return { sizeBytes: content.length, sha256, resumedBytes: 0, attempts: 1 };
  }

  async close(): Promise<void> {}
}

const options: CacheProcessOptions = JSON.parse(process.argv[2] ?? '');
const source = new PieceSource();
const { cache } = await setUp({ teardown: () => undefined }, { ...options, sources: [source], openTimeoutMs: 60_000 });
const leases = new Map<string, Lease>();
let letGo = () => {};

async function obey(order: Order): Promise<Answer> {
  if (order.kind === 'hold') {
    source.gate ??= new Promise((resolve) => {
      letGo = resolve;
    });
  } else if (order.kind === 'letGo') {
    source.gate = undefined;
    letGo();
  } else if (order.kind === 'release') {
    leases.get(order.seed)?.release();
    leases.delete(order.seed);
  } else {
    const blob = blobOf(order.seed, order.sizeBytes);
    source.contents.set(blob.address.sha256, blob.content);
    const label = { variant: 'v', task: order.seed };
    leases.set(order.seed, await cache.open(blob.address, label, new AbortController().signal));
  }
  return {};
}

process.on('message', ({ id, order }: { id: number; order: Order }) => {
  obey(order).then(
    (answer) => process.send?.({ id, answer }),
    (error: unknown) => {
      const answer =
        error instanceof TmaxError ? { errno: error.errno, message: error.message } : { errno: String(error) };
      process.send?.({ id, answer });
    },
  );
});
process.send?.({});
