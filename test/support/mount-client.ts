/** Starts a mount-server process and talks to it; runs the programs that use the mount. */

import { type ChildProcess, fork } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import type { DriverStatistics, MountOptions } from '../../src/fuse/driver.js';
import { topMountAt } from '../../src/fuse/mount-table.js';
import type { MemoryFile } from './memory-file-system.js';
import { supportProgram } from './paths.js';

export interface MountServerConfig extends Omit<MountOptions, 'log'> {
  readonly files: readonly MemoryFile[];
  readonly attributeTimeoutMs?: number;
}

export type MountServerCommand = { readonly id: number } & (
  | { readonly kind: 'start'; readonly config: MountServerConfig }
  | { readonly kind: 'state' }
  | { readonly kind: 'finish' }
  | { readonly kind: 'unmount'; readonly lazy: boolean; readonly drainTimeoutMs: number }
);

export interface MountServerState {
  readonly driver: string;
  readonly passthrough: boolean;
  readonly ended: boolean;
  readonly statistics: DriverStatistics;
  readonly fileSystem: {
    readonly waitingOpens: number;
    readonly openDescriptors: number;
    readonly events: readonly string[];
  };
}

export type MountServerReply =
  | { readonly id: number; readonly state: MountServerState }
  | { readonly id: number; readonly error: string; readonly errno: string };

type WithoutId<Command> = Command extends unknown ? Omit<Command, 'id'> : never;

/** Who serves and uses the mount. */
export type User = 'root' | 'ordinary';

/** The ordinary user of the tests; needs no entry in /etc/passwd. */
export const ORDINARY_UID = 1000;
const ANSWER_LIMIT_MS = 60_000;
/** A namespace that another test makes meanwhile has copies of all mounts until it lets go of them. */
const DRAIN_LIMIT_MS = 30_000;

/** A refusal of the server, with the errno of its `TmaxError`. */
export class ServerError extends Error {
  constructor(
    message: string,
    readonly errno: string,
  ) {
    super(message);
  }
}

export class MountServer {
  readonly user: User;
  /** All that the server has logged. */
  log = '';
  readonly #process: ChildProcess;
  readonly #pending = new Map<number, (reply: MountServerReply) => void>();
  readonly #exited: Promise<void>;
  #lastId = 0;

  /** `execArgv`: options of Node for the server, as "--import". */
  constructor(user: User, execArgv: readonly string[] = []) {
    this.user = user;
    this.#process = fork(supportProgram('mount-server'), [], {
      stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
      execArgv: [...execArgv],
      ...identity(user),
    });
    this.#exited = new Promise((resolve) => this.#process.once('exit', () => resolve()));
    this.#process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.log += text;
    });
    this.#process.on('message', (reply: MountServerReply) => this.#pending.get(reply.id)?.(reply));
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  start(config: MountServerConfig): Promise<MountServerState> {
    return this.#ask({ kind: 'start', config });
  }

  state(): Promise<MountServerState> {
    return this.#ask({ kind: 'state' });
  }

  finish(): Promise<MountServerState> {
    return this.#ask({ kind: 'finish' });
  }

  unmount(options: { readonly lazy: boolean; readonly drainTimeoutMs?: number }): Promise<MountServerState> {
    return this.#ask({ kind: 'unmount', drainTimeoutMs: DRAIN_LIMIT_MS, ...options });
  }

  /** SIGKILL, as a crash; resolves when the process is gone. */
  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exited;
  }

  /** Waits until `condition` holds of the server's state. */
  async until(description: string, condition: (state: MountServerState) => boolean): Promise<MountServerState> {
    return eventually(description, async () => {
      const state = await this.state();
      return condition(state) ? state : undefined;
    });
  }

  #ask(command: WithoutId<MountServerCommand>): Promise<MountServerState> {
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => reject(new Error(`no answer to ${command.kind}; log:\n${this.log}`)),
        ANSWER_LIMIT_MS,
      );
      this.#pending.set(id, (reply) => {
        clearTimeout(timer);
        this.#pending.delete(id);
        if ('error' in reply) reject(new ServerError(reply.error, reply.errno));
        else resolve(reply.state);
      });
      this.#process.send({ ...command, id });
    });
  }
}

/** The uid and gid to start a process of this user with. */
export function identity(user: User): { uid?: number; gid?: number } {
  return user === 'root' ? {} : { uid: ORDINARY_UID, gid: ORDINARY_UID };
}

const POLL_INTERVAL_MS = 10;
const EVENTUALLY_LIMIT_MS = 30_000;

/** Asks again and again until there is an answer; fails loudly after `limitMs`. */
export async function eventually<Value>(
  description: string,
  ask: () => Promise<Value | undefined> | Value | undefined,
  limitMs = EVENTUALLY_LIMIT_MS,
): Promise<Value> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    if (performance.now() > deadline) throw new Error(`did not happen within ${limitMs} ms: ${description}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
  }
}

/** Notes what is to be undone after a test or a file of tests: `t.teardown`, for one. */
export type Defer = (undo: () => Promise<void>) => void;

/** A fresh directory that both users may use, removed afterwards together with what is still mounted on `mountpoint`. */
export async function temporaryDirectory(defer: Defer): Promise<{ directory: string; mountpoint: string }> {
  const directory = await mkdtemp(join(tmpdir(), 'tmaxfs-test-'));
  const mountpoint = join(directory, 'mnt');
  await execa('install', ['-d', '-m', '755', '-o', String(ORDINARY_UID), directory, mountpoint]);
  defer(async () => {
    while (topMountAt(mountpoint) !== undefined) await execa('umount', ['-l', mountpoint]);
    await rm(directory, { recursive: true, force: true });
  });
  return { directory, mountpoint };
}
