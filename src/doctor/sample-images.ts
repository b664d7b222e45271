/** An image that each pool has, for a source to be asked for: the smallest that is known without asking the Hub for more than a page. */

import { pino } from 'pino';
import { IMAGE_SUFFIX } from '../catalog/names.js';
import { hubSettings } from '../daemon/hub-settings.js';
import type { Settings } from '../daemon/settings.js';
import { HubClient } from '../sources/hub-client.js';
import { METADATA_RETRY, type RetrySettings } from '../sources/limits.js';
import type { BlobAddress } from '../sources/source.js';
import type { PoolPlace } from './catalog-trial.js';
import { storedImages } from './trial.js';

/** For the disk and the Hub together. */
const LIMIT_MS = 6_000;
/** What one page of a listing has. */
const MAX_ENTRIES = 1_000;
/** A person waits. */
const ONCE: RetrySettings = { ...METADATA_RETRY, maxAttemptsWithoutProgress: 1, maxPauseMs: 0 };

/**
 * At most one for each pool: out of its catalog on disk, else out of the first page of its listing. None where neither is to be had.
 * Never rejects.
 */
export async function sampleImages(settings: Settings, called: AbortSignal): Promise<readonly BlobAddress[]> {
  const signal = AbortSignal.any([called, AbortSignal.timeout(LIMIT_MS)]);
  const stored = await storedImages(settings.cacheDirectory, settings.pools, LIMIT_MS);
  const others = settings.pools.filter((pool) => !stored.some(({ repository }) => repository === pool.repository));
  if (others.length === 0 || signal.aborted) return stored;
  const listed = await Promise.all(others.map((pool) => smallestListed(pool, settings, signal)));
  return [...stored, ...listed.flat()];
}

/** What is wrong with the Hub, or with how it is to be asked, is told by checks of their own. */
async function smallestListed(
  { repository, revision }: PoolPlace,
  settings: Settings,
  signal: AbortSignal,
): Promise<readonly BlobAddress[]> {
  let client: HubClient | undefined;
  let smallest: BlobAddress | undefined;
  try {
    client = new HubClient(hubSettings(settings, pino({ level: 'silent' })), ONCE);
    const { commit } = await client.resolveRevision(repository, revision, signal);
    let entries = 0;
    for await (const { path, sha256, sizeBytes } of client.listFiles(repository, commit, { signal })) {
      const isImage = sha256 !== undefined && path.endsWith(IMAGE_SUFFIX);
      if (isImage && sizeBytes < (smallest?.sizeBytes ?? Number.POSITIVE_INFINITY)) {
        smallest = { repository, commit, path, sha256, sizeBytes };
      }
      entries += 1;
      if (entries === MAX_ENTRIES) break;
    }
  } catch {
    // As far as it came.
  } finally {
    await client?.close();
  }
  return smallest === undefined ? [] : [smallest];
}
