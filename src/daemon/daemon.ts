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
import { messageOf, TmaxError } from '../errors.js';
import { PoolFileSystem } from '../filesystem/pool-file-system.js';
import type { Tree } from '../filesystem/tree.js';
import { type MountHandle, mountFileSystem } from '../fuse/driver.js';
import { prepareMountpoint } from '../fuse/mounts.js';
import { HubClient } from '../sources/hub-client.js';
import { METADATA_RETRY } from '../sources/limits.js';
import { RateGovernor } from '../sources/rate-governor.js';
import { hostArchitecture } from '../verify/architecture.js';
import { VERIFIER_VERSION, Verifier } from '../verify/verifier.js';
import { daemonActions } from './actions.js';
import { describeActivity } from './activity.js';
import { catalogsIn } from './catalog-folder.js';
import { Closers } from './closers.js';
import { controlGroup } from './control-group.js';
import { type Actions, startControlServer } from './control-server.js';
import { describePools } from './describe-pools.js';
import { openDestinations } from './destinations.js';
import { DiskSpace } from './disk-space.js';
import { daemonDocuments } from './documents.js';
import { hubSettings } from './hub-settings.js';
import { collectGarbage } from './memory.js';
import { Measurements, measuredOpens, measuredProver, measuredSource } from './metrics/measurements.js';
import { WebServer } from './metrics/web-server.js';
import { areFixed, deviceOf } from './pool-choices.js';
import { Pools } from './pools.js';
import {
  CONTROL_ATTRIBUTE,
  type Environment,
  makeRuntimeDirectory,
  type RuntimeDirectory,
  removeDeadSockets,
  removeRuntimeDirectory,
  STATUS_ATTRIBUTE,
  uniqueSocketPath,
} from './runtime-directory.js';
import type { Settings } from './settings.js';
import { logSettings } from './settings-log.js';
import { imagesThatCannotFit } from './small-cache.js';
import { openSources, stateOf } from './sources.js';

/** Threads that relay reads; with passthrough they are idle. */
const READ_THREADS = 2;
/**
 * How long the kernel may keep what it learnt: of a commit that was named, which never changes, as good as for ever; of a
 * branch, as long as names may be out of date after it has moved.
 */
const FIXED_TIMEOUT_MS = 3_600_000;
const MOVABLE_TIMEOUT_MS = 5_000;
/** How long a stop waits for files that are still open, where their reads need this daemon, and where they don't. */
const RELAYED_DRAIN_TIMEOUT_MS = 60_000;
const PASSTHROUGH_DRAIN_TIMEOUT_MS = 1_000;

/** How long after the mount garbage is collected. */
const TIDY_AFTER_MS = 2_000;

/** Of the sockets: actions are for who mounted, documents for all whom the mount lets in. */
const CONTROL_SOCKET_MODE = 0o600;
const GROUP_SOCKET_MODE = 0o660;
const STATUS_SOCKET_MODE = 0o666;

export interface DaemonOptions {
  readonly environment: Environment;
  /** Where `log` ends up, for `status`; undefined: standard error. */
  readonly logFile: string | undefined;
  /** Ends the start. */
  readonly signal: AbortSignal;
}

export class Daemon {
  /** Resolves once the mount is gone, whoever unmounted it, or could not be taken down after a stop. Closing follows. */
  readonly ending: Promise<void>;
  /** Resolves once everything has been closed after that. */
  readonly ended: Promise<void>;
  readonly #settings: Settings;
  readonly #pools: Pools;
  readonly #mount: MountHandle;
  readonly #log: Logger;
  readonly #warnings: readonly string[];
  readonly #activity: () => string;
  readonly #stop = new AbortController();

  private constructor(
    settings: Settings,
    pools: Pools,
    mount: MountHandle,
    log: Logger,
    closers: Closers,
    warnings: readonly string[],
    activity: () => string,
  ) {
    this.#settings = settings;
    this.#pools = pools;
    this.#mount = mount;
    this.#log = log;
    this.#warnings = warnings;
    this.#activity = activity;
    // Where someone else ended it (umount, an aborted connection), what is left of it in the tree is cleared.
    this.ending = Promise.race([mount.ended, once(this.#stop.signal, 'abort')]).then(() => this.#unmount());
    this.ended = this.ending.then(async () => {
      await closers.close();
      log.info('the daemon ends');
    });
  }

  /** Returns once the tree is readable. Errors: whatever keeps it from that, with nothing left behind; EINTR. */
  static async start(settings: Settings, log: Logger, options: DaemonOptions): Promise<Daemon> {
    const closers = new Closers(log);
    try {
      return await startDaemon(settings, log, options, closers, (pools, mount, warnings, activity) => {
        return new Daemon(settings, pools, mount, log, closers, warnings, activity);
      });
    } catch (error) {
      await closers.close();
      throw error;
    }
  }

  /** Looks for a newer commit and shows it. How that went is in the log and in `status`. */
  reload(): void {
    this.#pools.reloadQuietly();
  }

  /** Unmounts. Files that are open keep working for as long as they can. Ends in `ended`. */
  stop(): void {
    this.#stop.abort();
  }

  /** Lines for people: what is mounted, and each thing that they should know of. */
  summary(): string {
    return [...describePools(this.#pools, this.#settings), ...this.#warnings.map((words) => `warning: ${words}`)].join(
      '\n',
    );
  }

  /** One line on what it has and does now. */
  activity(): string {
    return this.#activity();
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

async function startDaemon(
  settings: Settings,
  log: Logger,
  { environment, logFile, signal }: DaemonOptions,
  closers: Closers,
  create: (pools: Pools, mount: MountHandle, warnings: readonly string[], activity: () => string) => Daemon,
): Promise<Daemon> {
  const startedAt = new Date();
  logSettings(settings, log);
  // What is wrong here is said before the network is asked; it is checked again right before mounting.
  await prepareMountpoint(settings.mountpoint, log);
  const group = settings.controlGroup === undefined ? undefined : await controlGroup(settings.controlGroup);
  const web = settings.metricsPort === undefined ? undefined : await WebServer.start(settings.metricsPort, log);
  if (web !== undefined) closers.add(() => web.close());
  const store = await BlobStore.open(settings.cacheDirectory, { isShared: settings.sharedCache });
  const space = await DiskSpace.start(store, settings);
  closers.add(() => space.close());

  const hub = settings.offline ? undefined : hubSettings(settings, log);
  // One pause for both where the Hub asks for one.
  const governor = new RateGovernor();
  const client = hub === undefined ? undefined : new HubClient(hub, METADATA_RETRY, governor);
  if (client !== undefined) closers.add(() => client.close());
  const measurements = new Measurements();
  const opened = await openSources(settings, governor, log);
  const sources = opened.map(({ source }) => measuredSource(source, measurements));
  for (const source of sources) closers.add(() => source.close());
  const destinations = await openDestinations(settings, log);
  for (const destination of destinations) closers.add(() => destination.close());
  const verifier = new Verifier({ threads: settings.verifyThreads });
  closers.add(() => verifier.close());

  const [pools, blobs] = await Promise.all([
    Pools.open({
      choices: settings.pools,
      origin: client,
      store: catalogsIn(store),
      startTimeoutMs: settings.startTimeoutMs,
      followMs: settings.followMs,
      log,
      signal,
    }),
    BlobCache.open({
      store,
      limits: space.limits,
      sources,
      destinations,
      prover: measuredProver(verifier, measurements),
      verifierVersion: VERIFIER_VERSION,
      level: settings.verifyLevel,
      openTimeoutMs: settings.openTimeoutMs,
      maxFetches: settings.maxFetches,
      architecture: { served: settings.architectures, host: hostArchitecture() },
      log,
    }),
  ]);
  closers.add(() => blobs.close());
  closers.add(() => pools.close());
  const scrubber = startScrubber(settings, store, blobs, log);
  if (scrubber !== undefined) closers.add(() => scrubber.close());
  space.watch(() => blobs.counts().use.usedBytes);

  const runtime = makeRuntimeDirectory(environment, settings.allowOther);
  closers.add(() => removeRuntimeDirectory(runtime));
  await removeDeadSockets(runtime);
  const sockets = chooseSockets(settings, runtime);
  const tree = pools.start((next) => fileSystem.show(next));
  const fileSystem = poolFileSystem(settings, tree, measuredOpens(blobs, measurements), space, sockets);
  let mount: MountHandle | undefined;
  const { documents, webDocuments } = daemonDocuments({
    startedAt,
    settings,
    pools,
    blobs,
    scrubber,
    space,
    fileSystem,
    mount: () => mount,
    logFile,
    metricsUrl: web?.url,
    measurements,
    sources: () => opened.map(stateOf),
  });
  const listen = async (path: string, mode: number, actions: Actions, gid?: number): Promise<void> => {
    const server = await startControlServer(path, {
      documents,
      actions,
      mode,
      madeIn: runtime.private,
      group: gid,
      log,
    });
    closers.add(() => server.close());
  };
  const mode = group === undefined ? CONTROL_SOCKET_MODE : GROUP_SOCKET_MODE;
  await listen(sockets.control, mode, daemonActions(settings, pools, blobs, fileSystem), group);
  if (sockets.status !== undefined) await listen(sockets.status, STATUS_SOCKET_MODE, {});
  throwIfCalledOff(signal);
  mount = await mountFileSystem(fileSystem, {
    mountpoint: settings.mountpoint,
    fsName: deviceOf(settings.pools),
    allowOther: settings.allowOther,
    noExec: settings.noExec,
    driver: settings.driver,
    passthrough: 'auto',
    readThreads: READ_THREADS,
    log,
  });
  web?.show(webDocuments);
  const { driver, passthrough } = mount;
  log.info(
    { mountpoint: settings.mountpoint, driver, passthrough, seconds: (Date.now() - startedAt.getTime()) / 1000 },
    'mounted: the tree is readable',
  );
  // What the start has left over, when whoever waited for it has had a first look.
  const tidying = setTimeout(collectGarbage, TIDY_AFTER_MS).unref();
  closers.add(async () => clearTimeout(tidying));
  const tooLarge = imagesThatCannotFit(pools.catalog, space.limits, settings);
  if (tooLarge !== undefined) log.warn(tooLarge);
  const activity = () =>
    describeActivity({
      catalog: pools.catalog,
      follow: pools.follow(),
      blobs: blobs.statistics(),
      waitingOpens: fileSystem.waitingOpens.length,
    });
  const warnings = [...opened.map(({ warning }) => warning), tooLarge].filter((words) => words !== undefined);
  return create(pools, mount, warnings, activity);
}

/** Errors: EINTR. */
function throwIfCalledOff(signal: AbortSignal): void {
  if (signal.aborted) throw new TmaxError('EINTR', 'the start was called off', { source: 'daemon' });
}

interface Sockets {
  readonly control: string;
  /** Where others are let in. */
  readonly status: string | undefined;
}

function chooseSockets({ allowOther, controlGroup }: Settings, runtime: RuntimeDirectory): Sockets {
  return {
    control: uniqueSocketPath(controlGroup === undefined ? runtime.private : runtime.folder),
    status: allowOther ? uniqueSocketPath(runtime.folder) : undefined,
  };
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
  tree: Tree,
  blobs: Pick<BlobCache, 'open' | 'state' | 'isPinned'>,
  space: DiskSpace,
  sockets: Sockets,
): PoolFileSystem {
  return new PoolFileSystem({
    tree,
    blobs,
    uid: settings.uid,
    gid: settings.gid,
    timeouts: {
      nameMs: areFixed(settings.pools) ? FIXED_TIMEOUT_MS : MOVABLE_TIMEOUT_MS,
      fileMs: FIXED_TIMEOUT_MS,
    },
    rootAttributes: new Map([
      [CONTROL_ATTRIBUTE, sockets.control],
      ...(sockets.status === undefined ? [] : ([[STATUS_ATTRIBUTE, sockets.status]] as const)),
    ]),
    space: () => space.now(),
  });
}
