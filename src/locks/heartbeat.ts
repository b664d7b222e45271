/**
 * Whether another daemon on the same directory is alive, where only files can tell: each owner keeps a file that it writes anew
 * every few seconds. Times of files are compared with each other alone, never with a clock of this machine. An owner on this
 * very machine is looked up among its processes, so that one that was killed is known to be dead at once.
 *
 * Others may write into the folder: a file is written to only while it is the very one that its owner has made.
 */

import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  type Stats,
  statSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open, readdir, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { systemErrorCode } from '../errors.js';
import { isForbidden, isStrange, readSmallFile, removeStray } from '../small-file.js';

/** How often an owner's file is written anew, and after what silence it counts as dead. */
export const BEAT_MS = 5_000;
export const STALE_MS = 60_000;
/** Other users look at it too, whatever the umask of this one. */
const READABLE = 0o644;
/** Files of owners that are looked at by who starts, to remove those of dead ones: others who start look at others. */
const MAX_CLEANED = 64;
const WRITE_WHAT_IS_THERE = constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

const ownerShape = v.object({
  host: v.string(),
  /** What a process is known by: its number means something within one start of one machine, and one namespace. */
  bootId: v.string(),
  pidNamespace: v.string(),
  pid: v.pipe(v.number(), v.integer(), v.minValue(1)),
  /** Of that process, in the kernel's ticks since the boot: another that has got its number has another. */
  startTicks: v.string(),
  /** For people. */
  startedAt: v.string(),
});
type Owner = v.InferOutput<typeof ownerShape>;

export class Heartbeat {
  /** 16 hex digits. */
  readonly id = randomBytes(8).toString('hex');
  readonly #folder: string;
  readonly #makeFolder: (path: string) => void;
  readonly #self: Owner = {
    host: hostname(),
    bootId: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
    pidNamespace: readlinkSync('/proc/self/ns/pid'),
    pid: process.pid,
    startTicks: startTicksOf(process.pid) ?? '',
    startedAt: new Date().toISOString(),
  };
  /** Of the file that this owner has made. */
  #inode: number | undefined;
  /** When it was written last: by the file system's clock, and by ours. */
  #writtenMs = 0;
  #writtenAtMs = 0;
  #isWriting = false;
  #timer: NodeJS.Timeout | undefined;

  /** `folder`: of all owners' files. `makeFolder`: also makes what is missing above it. */
  constructor(folder: string, makeFolder: (path: string) => void) {
    this.#folder = folder;
    this.#makeFolder = makeFolder;
  }

  /** Makes the owner known, unless it is. What it locks counts from then on. Errors: those of the disk. */
  start(): void {
    if (this.#timer !== undefined) return;
    this.#makeFolder(this.#folder);
    const path = join(this.#folder, this.id);
    // What an earlier stop has not removed yet.
    rmSync(path, { force: true });
    const descriptor = openSync(path, 'wx', READABLE);
    try {
      writeFileSync(descriptor, JSON.stringify(this.#self));
      fchmodSync(descriptor, READABLE);
      this.#written(fstatSync(descriptor));
    } finally {
      closeSync(descriptor);
    }
    this.#timer = setInterval(() => void this.#beat(), BEAT_MS).unref();
    void this.#removeDead();
  }

  /** Takes the owner back: nothing of it counts any more, until it starts again. */
  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    rm(join(this.#folder, this.id), { force: true }).catch(() => undefined);
  }

  /** True where the owner is dead for certain, or has been silent for so long that it counts as that. */
  isStale(owner: string): boolean {
    if (owner === this.id) return false;
    const path = join(this.#folder, owner);
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats === undefined || this.#hasEnded(parseOwner(readSmallFile(path)))) return true;
    const sinceMs = performance.now() - this.#writtenAtMs;
    // Whoever has been stopped for as long himself knows nothing of others yet.
    return sinceMs < STALE_MS / 2 && this.#writtenMs + sinceMs - stats.mtimeMs > STALE_MS;
  }

  async #beat(): Promise<void> {
    // A disk that does not answer is asked once.
    if (this.#isWriting) return;
    this.#isWriting = true;
    try {
      const path = join(this.#folder, this.id);
      const file = (await this.#openOwn(path)) ?? (await this.#makeAnew(path));
      try {
        await file.writeFile(JSON.stringify(this.#self));
        this.#written(await file.stat());
      } finally {
        await file.close();
      }
      if (this.#timer === undefined) await rm(path, { force: true });
    } catch {
      // Once it has been silent for too long it counts as dead: what else it does with this disk fails, and says so.
    } finally {
      this.#isWriting = false;
    }
  }

  /** Undefined where it is there no more, or something else is. */
  async #openOwn(path: string): Promise<FileHandle | undefined> {
    let file: FileHandle;
    try {
      file = await open(path, WRITE_WHAT_IS_THERE);
    } catch (error) {
      if (isStrange(error) || isForbidden(error)) return undefined;
      throw error;
    }
    if ((await file.stat()).ino === this.#inode) return file;
    await file.close();
    return undefined;
  }

  async #makeAnew(path: string): Promise<FileHandle> {
    this.#makeFolder(this.#folder);
    await removeStray(path);
    const file = await open(path, 'wx', READABLE);
    await file.chmod(READABLE);
    return file;
  }

  #written({ ino, mtimeMs }: Pick<Stats, 'ino' | 'mtimeMs'>): void {
    this.#inode = ino;
    this.#writtenMs = mtimeMs;
    this.#writtenAtMs = performance.now();
  }

  #hasEnded(owner: Owner | undefined): boolean {
    if (owner === undefined) return false;
    const { bootId, pidNamespace } = this.#self;
    if (owner.bootId !== bootId || owner.pidNamespace !== pidNamespace) return false;
    const startTicks = startTicksOf(owner.pid);
    return startTicks === undefined ? !isHidden(owner.pid) : startTicks !== owner.startTicks;
  }

  async #removeDead(): Promise<void> {
    try {
      const owners = await readdir(this.#folder);
      const first = Math.floor(Math.random() * owners.length);
      for (const owner of [...owners.slice(first), ...owners.slice(0, first)].slice(0, MAX_CLEANED)) {
        if (this.isStale(owner)) await rm(join(this.#folder, owner), { force: true });
      }
    } catch {
      // Left for the next who starts.
    }
  }
}

function parseOwner(text: string | undefined): Owner | undefined {
  try {
    const parsed = v.safeParse(ownerShape, JSON.parse(text ?? ''));
    return parsed.success ? parsed.output : undefined;
  } catch {
    // Being written right now, or not for this user to read: it tells nothing of its process.
    return undefined;
  }
}

/** Whether there is such a process, of another user, where users do not see each other's (proc(5), hidepid). */
function isHidden(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return systemErrorCode(error) === 'EPERM';
  }
}

/** Field 22 of /proc/PID/stat, counted from behind the name, which may hold anything (proc(5)); undefined where that can't be read. */
function startTicksOf(pid: number): string | undefined {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended, and waits for its parent to notice.
    return fields[0] === 'Z' || fields[0] === 'X' ? 'ended' : fields[19];
  } catch {
    return undefined;
  }
}
