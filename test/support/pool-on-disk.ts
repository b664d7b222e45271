/** A mounted pool whose cache lies on a disk of its own, and what processes get from it. */

import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { FakeFile } from '../../src/demo/fake-hub-repository.js';
import { eventually } from './mount-client.js';
import { RunningPython } from './mount-user.js';
import { MountedPool } from './mounted-pool.js';
import { smallPool } from './small-pool.js';

const MIB = 2 ** 20;
/** One request's worth. */
export const IMAGE_BYTES = 3 * MIB;
export const STALL_AFTER_BYTES = 2 * MIB;

/** Holds a file open, and digests it, from the disk, whenever it is told to. */
const HOLD = `
file = open(args[0], 'rb')
out('open')
for _ in sys.stdin:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    file.seek(0)
    out(hashlib.sha256(file.read()).hexdigest())`;

export class PoolOnDisk {
  readonly #t: ExecutionContext;

  private constructor(
    t: ExecutionContext,
    readonly pool: MountedPool,
    readonly files: readonly FakeFile[],
  ) {
    this.#t = t;
  }

  /** The cache lies in the folder `cache` below `disk`, without a reserve; `args`: further words of `tmaxfs mount`. */
  static async start(
    t: ExecutionContext,
    disk: { readonly path: string },
    images: number,
    args: readonly string[] = [],
  ): Promise<PoolOnDisk> {
    const { files, tasks } = smallPool(images, IMAGE_BYTES);
    const cacheDirectory = join(disk.path, 'cache');
    const words = ['--cache-size', '1G', '--reserve-free', '0', '--idle-timeout', '4', ...args];
    return new PoolOnDisk(t, await MountedPool.start(t, { files, tasks, cacheDirectory, args: words }), files);
  }

  /** As the listing states it. */
  sha256(task: number): string {
    return this.files[task]?.sha256 ?? '?';
  }

  blobPath(task: number): string {
    const sha256 = this.sha256(task);
    return join(this.pool.cacheDirectory, 'blobs', sha256.slice(0, 2), sha256);
  }

  isCached(task: number): boolean {
    return existsSync(this.blobPath(task));
  }

  /** What a process gets that opens and reads a task. */
  async read(task: number): Promise<{ readonly digest: string; readonly words: string }> {
    const { stdout, stderr } = await this.pool.run('sha256sum', [this.pool.path(`v/t${task}.sif`)]);
    return { digest: stdout.split(' ')[0] ?? '', words: stderr };
  }

  async isServed(task: number): Promise<void> {
    const { digest, words } = await this.read(task);
    const why = digest === this.sha256(task) ? '' : `t${task}: ${words} (${await this.lastFailure()})`;
    this.#t.is(digest, this.sha256(task), why);
  }

  /** The message of the last fetch that failed. */
  async lastFailure(): Promise<string> {
    const failure = (await this.pool.status()).lastFailures.at(-1);
    return `${failure?.errno}: ${failure?.message}`;
  }

  /** Holds a task open. */
  async hold(task: number): Promise<Holder> {
    const program = new RunningPython(this.#t.teardown, 'root', HOLD, this.pool.path(`v/t${task}.sif`));
    this.#t.is(await program.report(), 'open');
    return {
      digest: async () => {
        program.tell('read it again');
        return await program.report();
      },
      close: async () => {
        const before = (await this.pool.status()).kernel.openHandles;
        program.signal('SIGKILL');
        await program.exit();
        await eventually('the lease has come back', async () => {
          return (await this.pool.status()).kernel.openHandles < before || undefined;
        });
      },
    };
  }

  /** Opens a task whose bytes stop in the middle; runs `meanwhile` there, and lets it go on. Answers as `read`. */
  async duringFetch(task: number, meanwhile: () => Promise<void>): ReturnType<PoolOnDisk['read']> {
    const stall = this.pool.hub.fault({
      path: this.files[task]?.path ?? '?',
      server: 'cdn',
      fault: { kind: 'stall', afterBytes: STALL_AFTER_BYTES },
      requests: 'every',
    });
    const reading = this.read(task);
    const partial = join(this.pool.cacheDirectory, 'partial', this.sha256(task));
    await eventually('half of it has arrived', () => {
      return (existsSync(partial) && statSync(partial).size === STALL_AFTER_BYTES) || undefined;
    });
    await meanwhile();
    stall.remove();
    return await reading;
  }
}

/** A process that holds a task open. */
export interface Holder {
  /** Of what it reads through the file that it has opened, now and from the disk. */
  digest(): Promise<unknown>;
  /** Resolves when the daemon has noticed. */
  close(): Promise<void>;
}
