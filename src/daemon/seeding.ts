/** What `tmaxfs seed` works with: catalog, sources, cache and destination as a daemon has them, without a mount. */

import type { Logger } from 'pino';
import { BlobCache } from '../blobs/blob-cache.js';
import { BlobStore } from '../blobs/blob-store.js';
import { type SeedOptions, type SeedProgress, seed } from '../blobs/seed.js';
import { HubClient } from '../sources/hub-client.js';
import { METADATA_RETRY } from '../sources/limits.js';
import { RateGovernor } from '../sources/rate-governor.js';
import { hostArchitecture } from '../verify/architecture.js';
import { VERIFIER_VERSION, Verifier } from '../verify/verifier.js';
import { catalogsIn } from './catalog-folder.js';
import { Closers } from './closers.js';
import { openDestination } from './destinations.js';
import { DiskSpace } from './disk-space.js';
import { hubSettings } from './hub-settings.js';
import { Pools } from './pools.js';
import type { Settings } from './settings.js';
import { type DestinationChoice, sourceName } from './source-choices.js';
import { openSources } from './sources.js';
import { type Selection, wantedBlobs } from './wanted-blobs.js';

/** Nobody waits in an open: a fetch may take as long as its source's patience lasts, and room as long as an upload. */
const FETCH_TIMEOUT_MS = 3 * 3_600_000;
const LEASE_PATIENCE_MS = 3_600_000;

export interface SeedingOptions extends Omit<SeedOptions, 'concurrency'> {
  readonly to: DestinationChoice;
  readonly selection: Selection;
  readonly log: Logger;
}

export interface SeedResult extends SeedProgress {
  /** Names that stand for nothing that could be fetched, with the reason. */
  readonly unknown: readonly { readonly name: string; readonly reason: string }[];
}

/**
 * Resolves when every image of the selection is at the destination or has failed. Errors: as `seed`; EINVAL no such variant;
 * those of the catalog, the cache directory, and of a place that can't be used.
 */
export async function seedDestination(settings: Settings, options: SeedingOptions): Promise<SeedResult> {
  const closers = new Closers(options.log);
  try {
    return await openAndSeed(settings, options, closers);
  } finally {
    await closers.close();
  }
}

async function openAndSeed(settings: Settings, options: SeedingOptions, closers: Closers): Promise<SeedResult> {
  const { to, selection, log, signal } = options;
  // Before the network is asked for anything.
  const destination = await openDestination(to, settings, log);
  closers.add(() => destination.close());
  const store = await BlobStore.open(settings.cacheDirectory, { isShared: settings.sharedCache });
  const space = await DiskSpace.start(store, settings);
  closers.add(() => space.close());
  const governor = new RateGovernor();
  const client = settings.offline ? undefined : new HubClient(hubSettings(settings, log), METADATA_RETRY, governor);
  if (client !== undefined) closers.add(() => client.close());
  const pools = await Pools.open({
    choices: settings.pools,
    origin: client,
    store: catalogsIn(store),
    startTimeoutMs: settings.startTimeoutMs,
    followMs: undefined,
    log,
    signal,
  });
  closers.add(() => pools.close());
  const wanted = wantedBlobs(pools.catalog, selection);
  // What is not there is not looked for there.
  const others = settings.sources.filter((choice) => sourceName(choice) !== sourceName(to));
  const opened = await openSources({ ...settings, sources: others }, governor, log);
  const sources = opened.map(({ source }) => source);
  for (const source of sources) closers.add(() => source.close());
  const verifier = new Verifier({ threads: settings.verifyThreads });
  closers.add(() => verifier.close());
  const cache = await BlobCache.open({
    store,
    limits: { ...space.limits, leasePatienceMs: LEASE_PATIENCE_MS },
    sources,
    prover: verifier,
    verifierVersion: VERIFIER_VERSION,
    level: settings.verifyLevel,
    openTimeoutMs: FETCH_TIMEOUT_MS,
    maxFetches: settings.maxFetches,
    architecture: { served: settings.architectures, host: hostArchitecture() },
    log,
  });
  closers.add(() => cache.close());
  const progress = await seed({ cache, destination }, wanted.blobs, { ...options, concurrency: settings.maxFetches });
  return { ...progress, unknown: wanted.unknown };
}
