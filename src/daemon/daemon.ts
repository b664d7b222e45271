/**
 * The daemon: composes the rooms and owns their order. Up: disk, catalog, tree, control socket, mount. Down: the mount
 * first, then the same way back, so that nothing is answered from what is already gone.
 */

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { BlobCache } from '../blobs/blob-cache.js';
import { BlobStore } from '../blobs/blob-store.js';
import { type Clock, Scrubber } from '../blobs/scrubber.js';
import type { Catalog } from '../catalog/catalog.js';
import { CatalogStore } from '../catalog/catalog-store.js';
import { loadCatalog, reloadCatalog } from '../catalog/load-catalog.js';
import { messageOf, TmaxError } from '../errors.js';
import { PoolFileSystem, type PoolView } from '../filesystem/pool-file-system.js';
import { buildTree } from '../filesystem/tree.js';
import { type MountHandle, mountFileSystem } from '../fuse/driver.js';
import { prepareMountpoint } from '../fuse/mounts.js';
import { HubClient } from '../sources/hub-client.js';
import { HubSource } from '../sources/hub-source.js';
import { METADATA_RETRY } from '../sources/limits.js';
import { RateGovernor } from '../sources/rate-governor.js';
import type { Source } from '../sources/source.js';
import { hostArchitecture } from '../verify/architecture.js';
import { VERIFIER_VERSION, Verifier } from '../verify/verifier.js';
import { version } from '../version.js';
import { daemonActions } from './actions.js';
import { CatalogFollower } from './catalog-follower.js';
import { startControlServer } from './control-server.js';
import { type Coverage, countCoverage } from './coverage.js';
import { DiskSpace } from './disk-space.js';
import { hubSettings } from './hub-settings.js';
import { collectGarbage } from './memory.js';
import { CONTROL_ATTRIBUTE, controlSocketPath } from './runtime-directory.js';
import type { Settings } from './settings.js';
import { describeStatus, type Status } from './status.js';

/** Threads that relay reads; with passthrough they are idle. */
const READ_THREADS = 2;
/**
 * How long the kernel may keep what it learnt: of a commit that was named, which never changes, as good as for ever; of a
 * branch, as long as names may be out of date after it has moved.
 */
const FIXED_ATTRIBUTE_TIMEOUT_MS = 3_600_000;
const MOVABLE_ATTRIBUTE_TIMEOUT_MS = 5_000;
const COMMIT = /^[0-9a-f]{40}$/;
/** How long a stop waits for files that are still open, where their reads need this daemon, and where they don't. */
const RELAYED_DRAIN_TIMEOUT_MS = 60_000;
const PASSTHROUGH_DRAIN_TIMEOUT_MS = 1_000;

type Environment = Readonly<Record<string, string | undefined>>;

export class Daemon {
  /** Resolves once the mount is gone, whoever unmounted it, or could not be taken down after a stop. Closing follows. */
  readonly ending: Promise<void>;
  /** Resolves once everything has been closed after that. */
  readonly ended: Promise<void>;
  readonly #settings: Settings;
  readonly #follower: CatalogFollower;
  readonly #mount: MountHandle;
  readonly #log: Logger;
  readonly #stop = new AbortController();

  private constructor(
    settings: Settings,
    follower: CatalogFollower,
    mount: MountHandle,
    log: Logger,
    closers: Closers,
  ) {
    this.#settings = settings;
    this.#follower = follower;
    this.#mount = mount;
    this.#log = log;
    // Where someone else ended it (umount, an aborted connection), what is left of it in the tree is cleared.
    this.ending = Promise.race([mount.ended, once(this.#stop.signal, 'abort')]).then(() => this.#unmount());
    this.ended = this.ending.then(async () => {
      await closers.close();
      log.info('the daemon ends');
    });
  }

  /** Returns once the tree is readable. Errors: whatever keeps it from that, with nothing left behind. */
  static async start(settings: Settings, log: Logger, environment: Environment): Promise<Daemon> {
    const closers = new Closers(log);
    try {
      return await startDaemon(settings, log, environment, closers, (follower, mount) => {
        return new Daemon(settings, follower, mount, log, closers);
      });
    } catch (error) {
      await closers.close();
      throw error;
    }
  }

  /** Looks for a newer commit and shows it. How that went is in the log and in `status`. */
  reload(): void {
    this.#follower.reloadQuietly();
  }

  /** Unmounts. Files that are open keep working for as long as they can. Ends in `ended`. */
  stop(): void {
    this.#stop.abort();
  }

  /** One line for people. */
  summary(): string {
    const { repository, commit, variants: all } = this.#follower.catalog;
    const { mountpoint } = this.#settings;
    const variants = [...all.values()].map(({ name, tasks }) => `${name} ${tasks.size}`);
    return `${repository}@${commit.slice(0, 12)} is mounted on ${mountpoint}: ${variants.join(', ')}`;
  }

  async #unmount(): Promise<void> {
    const drainTimeoutMs = this.#mount.passthrough ? PASSTHROUGH_DRAIN_TIMEOUT_MS : RELAYED_DRAIN_TIMEOUT_MS;
    try {
      await this.#mount.unmount({ lazy: false, drainTimeoutMs }).catch((error: unknown) => {
        if (!(error instanceof TmaxError) || error.errno !== 'EBUSY') throw error;
        this.#log.warn({ reason: error.message }, 'the mount is busy: detached from the tree, open files go on');
        return this.#mount.unmount({ lazy: true, drainTimeoutMs });
      });
    } catch (error) {
      this.#log.error({ reason: messageOf(error) }, 'the mount could not be taken down: it ends with this process');
    }
  }
}

/** What was started, to be closed in reverse. */
class Closers {
  readonly #log: Logger;
  readonly #closers: (() => Promise<void> | void)[] = [];

  constructor(log: Logger) {
    this.#log = log;
  }

  add(close: () => Promise<void> | void): void {
    this.#closers.push(close);
  }

  async close(): Promise<void> {
    for (const close of this.#closers.splice(0).reverse()) {
      try {
        await close();
      } catch (error) {
        this.#log.error({ reason: messageOf(error) }, 'a part of the daemon could not be closed');
      }
    }
  }
}

async function startDaemon(
  settings: Settings,
  log: Logger,
  environment: Environment,
  closers: Closers,
  create: (follower: CatalogFollower, mount: MountHandle) => Daemon,
): Promise<Daemon> {
  const startedAt = new Date();
  logSettings(settings, log);
  // What is wrong here is said before the network is asked; it is checked again right before mounting.
  await prepareMountpoint(settings.mountpoint, log);
  const store = await BlobStore.open(settings.cacheDirectory);
  const space = await DiskSpace.start(store, settings);
  closers.add(() => space.close());

  const hub = settings.offline ? undefined : hubSettings(settings, log);
  // One pause for both where the Hub asks for one.
  const governor = new RateGovernor();
  const client = hub === undefined ? undefined : new HubClient(hub, METADATA_RETRY, governor);
  if (client !== undefined) closers.add(() => client.close());
  const sources: Source[] = hub === undefined ? [] : [new HubSource(hub, governor)];
  for (const source of sources) closers.add(() => source.close());
  const verifier = new Verifier({ threads: settings.verifyThreads });
  closers.add(() => verifier.close());

  const { repository, revision } = settings;
  const place = { repository, revision, origin: client, store: new CatalogStore(store.layout.catalogs), log };
  const [catalog, blobs] = await Promise.all([
    loadCatalog({ ...place, signal: new AbortController().signal }),
    BlobCache.open({
      store,
      limits: space.limits,
      sources,
      prover: verifier,
      verifierVersion: VERIFIER_VERSION,
      level: settings.verifyLevel,
      openTimeoutMs: settings.openTimeoutMs,
      maxFetches: settings.maxFetches,
      architecture: { served: settings.architectures, host: hostArchitecture() },
      log,
    }),
  ]);
  closers.add(() => blobs.close());
  const scrubber = startScrubber(settings, store, blobs, log);
  if (scrubber !== undefined) closers.add(() => scrubber.close());
  space.watch(() => blobs.statistics().use.usedBytes);

  const socketPath = controlSocketPath(settings.mountpoint, environment);
  const fileSystem = poolFileSystem(settings, viewOf(catalog, log), blobs, space, socketPath);
  const follower = new CatalogFollower({
    catalog,
    load: (current, signal) => reloadCatalog({ ...place, signal }, current),
    show: (next) => fileSystem.show(viewOf(next, log)),
    intervalMs: settings.followMs,
    log,
  });
  closers.add(() => follower.close());
  let mount: MountHandle | undefined;
  const documents = {
    '/status': async (): Promise<Status | undefined> => {
      if (mount === undefined) return undefined;
      const { availableBytes } = await store.disk();
      return describeStatus({
        version,
        startedAt,
        settings,
        catalog: follower.catalog,
        follow: follower.report(),
        blobs: blobs.statistics(),
        scrub: scrubber?.statistics(),
        diskAvailableBytes: availableBytes,
        mount,
      });
    },
    '/coverage': async (query: URLSearchParams): Promise<Coverage> => {
      const onDisk = await blobs.onDisk();
      return countCoverage(follower.catalog, onDisk, query.get('variant') ?? undefined);
    },
  };
  collectGarbage();
  mount = await mountFileSystem(fileSystem, {
    mountpoint: settings.mountpoint,
    fsName: settings.repository,
    allowOther: settings.allowOther,
    driver: settings.driver,
    passthrough: 'auto',
    readThreads: READ_THREADS,
    log,
  });
  try {
    // Only now is it sure that no other daemon serves this mount point, whose socket this would replace.
    const control = await startControlServer(socketPath, {
      documents,
      actions: daemonActions(settings, follower, blobs),
      log,
    });
    closers.add(() => control.close());
  } catch (error) {
    await mount.unmount({ lazy: true, drainTimeoutMs: 0 });
    throw error;
  }
  const { driver, passthrough } = mount;
  log.info(
    { mountpoint: settings.mountpoint, driver, passthrough, seconds: (Date.now() - startedAt.getTime()) / 1000 },
    'mounted: the tree is readable',
  );
  return create(follower, mount);
}

function viewOf(catalog: Catalog, log: Logger): PoolView {
  const tree = buildTree(catalog);
  for (const warning of tree.warnings) log.warn(warning);
  return { tree, commit: catalog.commit, date: catalog.date };
}

const CLOCK: Clock = {
  now: () => Date.now(),
  delay: (milliseconds, signal) => delay(milliseconds, undefined, { signal, ref: false }),
};

function startScrubber(settings: Settings, store: BlobStore, cache: BlobCache, log: Logger): Scrubber | undefined {
  if (settings.scrubPeriodMs === undefined) return undefined;
  const scrubber = new Scrubber({ store, cache, periodMs: settings.scrubPeriodMs, clock: CLOCK, log });
  scrubber.start();
  return scrubber;
}

function poolFileSystem(
  settings: Settings,
  view: PoolView,
  blobs: BlobCache,
  space: DiskSpace,
  socketPath: string,
): PoolFileSystem {
  return new PoolFileSystem({
    ...view,
    blobs,
    uid: settings.uid,
    gid: settings.gid,
    attributeTimeoutMs: COMMIT.test(settings.revision) ? FIXED_ATTRIBUTE_TIMEOUT_MS : MOVABLE_ATTRIBUTE_TIMEOUT_MS,
    rootAttributes: new Map([
      [CONTROL_ATTRIBUTE, socketPath],
      ['repository', settings.repository],
    ]),
    space: () => space.now(),
  });
}

/** What launchers leak into the environment decides what happens: it is said at every start. No secrets. */
function logSettings(settings: Settings, log: Logger): void {
  const { token, proxy, ...shown } = settings;
  log.info(
    {
      version,
      ...shown,
      proxy: { ...withoutPassword(proxy) },
      token: token.value === undefined ? `from ${token.file ?? 'nowhere'}, if there` : 'from the environment',
    },
    'starting',
  );
}

/** A proxy's address may hold a password. */
function withoutPassword(proxy: Settings['proxy']): Record<string, string> {
  return Object.fromEntries(
    Object.entries(proxy).map(([name, value]) => [name, String(value).replace(/\/\/[^/@]*@/, '//***@')]),
  );
}
