/** Blobs to be fetched from a fake Hub, and what tests check of every fetch. */

import { createHash } from 'node:crypto';
import type { FakeHub } from '../../src/demo/fake-hub.js';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import type { BlobAddress } from '../../src/sources/source.js';
import { headOf, REPOSITORY } from './hub.js';

/** Bytes that differ everywhere, the same on every run. */
export function patternBytes(sizeBytes: number, seed = 1): Buffer {
  const bytes = Buffer.alloc(sizeBytes);
  let state = seed;
  for (let at = 0; at < sizeBytes; at += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}

export function imageOf(path: string, bytes: Buffer): FakeFile {
  return fileOf(path, bytes);
}

export function addressOf(hub: FakeHub, { path, sha256, sizeBytes }: FakeFile): BlobAddress {
  return { repository: REPOSITORY, commit: headOf(hub), path, sha256, sizeBytes };
}

export function sha256Of(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
