/**
 * A pool mounted by the real command, in a process of its own, against a fake Hub in this one. This process must never
 * block on the mount (it serves the Hub): look at it through child processes or asynchronous calls.
 */

import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { execa } from 'execa';
import type { Status } from '../../src/daemon/status.js';
import { FakeHub, type FakeHubOptions } from '../../src/demo/fake-hub.js';
import { type TaskMap, taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { type FakeFile, type FakeRepository, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { type CommandResult, resultOf } from './command.js';
import { type LogLine, logged, logLines } from './daemon-log.js';
import { packagePath } from './paths.js';
import { type Lifetime, temporaryFolder } from './temporary.js';

/** Longer than any command of these tests takes on a loaded machine, shorter than ava's own limit. */
const COMMAND_TIMEOUT_MS = 60_000;

export const POOL_NAME = 'test-org/test-pool';

export interface MountedPoolOptions {
  /** Images, with their content. */
  readonly files: readonly FakeFile[];
  readonly tasks: TaskMap;
  /** Served beside the pool of those. */
  readonly more?: readonly FakeRepository[];
  /** The words that say what is mounted, in the place of that pool. */
  readonly place?: readonly string[];
  /** Further words of `tmaxfs mount`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly hub?: Omit<FakeHubOptions, 'repositories'>;
  /** An ordinary user mounts, by fusermount3. */
  readonly uid?: number;
  /** That user's group; by default, one of the user's own. */
  readonly gid?: number;
  /** As a shell takes it: "077". */
  readonly umask?: string;
  /** Tokens that the Hub knows. */
  readonly readers?: readonly string[];
  /** Reuses the cache of an earlier mount. */
  readonly cacheDirectory?: string;
}

export class MountedPool {
  private constructor(
    readonly hub: FakeHub,
    readonly folder: string,
    readonly mountpoint: string,
    readonly cacheDirectory: string,
    readonly logFile: string,
    readonly options: MountedPoolOptions,
  ) {}

  /** Serves and mounts; taken down with the test. */
  static async start(t: Lifetime, options: MountedPoolOptions): Promise<MountedPool> {
    const pool = await MountedPool.prepare(t, options);
    await pool.mount();
    return pool;
  }

  /** Serves, with everything ready to mount. */
  static async prepare(t: Lifetime, options: MountedPoolOptions): Promise<MountedPool> {
    const repository: FakeRepository = repositoryOf(POOL_NAME, [taskMapFile(options.tasks), ...options.files], {
      ...(options.readers === undefined ? {} : { readers: options.readers }),
    });
    const hub = await FakeHub.start({ repositories: [repository, ...(options.more ?? [])], ...options.hub });
    const folder = temporaryFolder(t);
    // Whoever opens images below it must be able to enter it.
    chmodSync(folder, 0o755);
    const mountpoint = join(folder, 'tmax');
    mkdirSync(mountpoint);
    if (options.uid !== undefined) {
      // What udev does wherever it runs; a test machine may have none.
      chmodSync('/dev/fuse', 0o666);
      for (const path of [folder, mountpoint]) await execa('chown', [String(options.uid), path]);
    }
    const cacheDirectory = options.cacheDirectory ?? join(folder, 'cache');
    const pool = new MountedPool(hub, folder, mountpoint, cacheDirectory, join(folder, 'log'), options);
    t.teardown(async () => {
      await pool.tmaxfs(['unmount', mountpoint, '--lazy']);
      await hub.close();
    });
    return pool;
  }

  /** Runs `tmaxfs mount`, which returns when the tree is readable. Throws with its output where that fails. */
  async mount(): Promise<void> {
    const { exitCode, stderr } = await this.tryMount();
    if (exitCode !== 0) throw new Error(`tmaxfs mount failed: ${stderr}`);
  }

  tryMount(): Promise<CommandResult> {
    return this.tmaxfs(this.mountCommand);
  }

  /** The words of `tmaxfs mount`. */
  get mountCommand(): readonly string[] {
    const { cacheDirectory, logFile, mountpoint } = this;
    const { place = ['--repo', POOL_NAME], args = [] } = this.options;
    const places = ['--cache-dir', cacheDirectory, '--log-file', logFile, '--log-level', 'debug'];
    return ['mount', mountpoint, ...place, ...places, ...args];
  }

  /** What Node runs. */
  get executable(): readonly string[] {
    return [packagePath('bin', 'tmaxfs.js')];
  }

  /** Runs the real command; its exit code is for the caller to judge. */
  tmaxfs(args: readonly string[], { input = '' }: { readonly input?: string } = {}): Promise<CommandResult> {
    const words = [process.execPath, ...this.executable, ...args];
    return resultOf(this.spawn(words, { timeout: COMMAND_TIMEOUT_MS, input }));
  }

  /** Starts a program in the environment of the commands, as the user who mounts; by default it may run for ever. */
  spawn(words: readonly string[], { timeout = 0, input }: { readonly timeout?: number; readonly input?: string } = {}) {
    const { umask } = this.options;
    const [file = '', ...args] = umask === undefined ? words : ['sh', '-c', `umask ${umask}; exec "$0" "$@"`, ...words];
    return execa(file, args, {
      env: {
        PATH: process.env['PATH'] ?? '',
        HOME: this.folder,
        XDG_RUNTIME_DIR: this.folder,
        HF_ENDPOINT: this.hub.endpoint,
        ...this.options.env,
      },
      extendEnv: false,
      reject: false,
      ...(input === undefined ? {} : { input }),
      timeout,
      ...this.#user(),
    });
  }

  /** Runs a command of the system, as the user who mounted. */
  run(file: string, args: readonly string[]): Promise<CommandResult> {
    return resultOf(execa(file, [...args], { reject: false, timeout: COMMAND_TIMEOUT_MS, ...this.#user() }));
  }

  async status(): Promise<Status> {
    const { stdout } = await this.tmaxfs(['status', this.mountpoint, '--json']);
    return JSON.parse(stdout) as Status;
  }

  /** Lines of the daemon's log that are there by now. */
  log(): LogLine[] {
    return logLines(this.logFile);
  }

  /** Lines of the daemon's log for which this holds, once there are so many at least. */
  logged(holds: (line: LogLine) => boolean, count = 1): Promise<LogLine[]> {
    return logged(this.logFile, holds, count);
  }

  path(...segments: string[]): string {
    return join(this.mountpoint, ...segments);
  }

  #user(): { uid?: number; gid?: number } {
    const { uid, gid = uid } = this.options;
    return uid === undefined || gid === undefined ? {} : { uid, gid };
  }
}
