/**
 * What a cache does in its life, in one fixed order, to be recorded: images are fetched, evicted, called off in the middle and
 * gone on from, refused, and found damaged on disk. Arguments: folder of the cache, folder of the images, their addresses as JSON.
 */

import { pino } from 'pino';
import { BlobCache } from '../../src/blobs/blob-cache.js';
import { BlobStore } from '../../src/blobs/blob-store.js';
import type { BlobAddress } from '../../src/sources/source.js';
import { verifyImage } from '../../src/verify/verify.js';
import { flipBit } from './bit-rot.js';
import { FolderSource } from './folder-source.js';
import { provingAfterwards } from './proving-afterwards.js';

const [root = '', pool = '', addresses = ''] = process.argv.slice(2);
const images = JSON.parse(addresses) as [BlobAddress, BlobAddress, BlobAddress, BlobAddress];
const [first, second, third, fourth] = images;
const PIECE_BYTES = 30_000;

const store = await BlobStore.open(root);
const cache = await BlobCache.open({
  store,
  // Two of them, and not three.
  limits: { limitBytes: 2.5 * first.sizeBytes, reserveFreeBytes: 0, leasePatienceMs: 1000 },
  sources: [new FolderSource(pool, { pieceBytes: () => PIECE_BYTES })],
  prover: provingAfterwards({ verify: verifyImage }),
  verifierVersion: 1,
  level: 'structure',
  openTimeoutMs: 60_000,
  maxFetches: 4,
  architecture: { served: 'any', host: 'amd64' },
  log: pino({ level: 'silent' }),
});

async function open(address: BlobAddress): Promise<void> {
  (await cache.open(address, { variant: 'v', task: address.path }, new AbortController().signal)).release();
}

/** Begins a fetch, and calls it off when some of it has arrived. */
async function callOff(address: BlobAddress): Promise<void> {
  const controller = new AbortController();
  const brought = cache.bring(address, { variant: 'v', task: address.path }, controller.signal, new Set());
  const watch = setInterval(() => {
    const state = cache.state(address.sha256);
    if ('receivedBytes' in state && state.receivedBytes > 0) controller.abort();
  });
  await brought.catch(() => undefined);
  clearInterval(watch);
  while (cache.isFetching) await new Promise(setImmediate);
}

await cache.pin([fourth.sha256]);
await Promise.all([open(first), open(second)]);
await open(third);
await callOff(fourth);
await open(fourth);
// The disk turns a bit of a blob, which is found, and then mended.
flipBit(store.layout.blob(fourth.sha256), fourth.sizeBytes >> 1);
await cache.drop(fourth.sha256, { code: 'sha256-mismatch', message: 'one bit differs' });
await open(fourth);
await open(first);
await cache.close();
