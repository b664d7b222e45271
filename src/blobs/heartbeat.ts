/**
 * Whether another daemon on the same directory is alive, where only files can tell: each owner keeps a file that it writes anew
 * every few seconds. Times of files are compared with each other alone, never with a clock of this machine. An owner on this
 * very machine is looked up among its processes, so that one that was killed is known to be dead at once.
 */

import { randomBytes } from 'node:crypto';
import { mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import * as v from 'valibot';
import { readSmallFile } from './small-file.js';

/** How often an owner's file is written anew, and after what silence it counts as dead. */
export const BEAT_MS = 5_000;
export const STALE_MS = 60_000;

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
  readonly #self: Owner = {
    host: hostname(),
    bootId: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
    pidNamespace: readlinkSync('/proc/self/ns/pid'),
    pid: process.pid,
    startTicks: startTicksOf(process.pid) ?? '',
    startedAt: new Date().toISOString(),
  };
  /** When it was written last: by the file system's clock, and by ours. */
  #writtenMs = 0;
  #writtenAtMs = 0;
  #isWriting = false;

  /** `folder`: of all owners' files. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** Makes the owner known. What it locks counts from then on. Errors: those of the disk. */
  start(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o755 });
    const path = join(this.#folder, this.id);
    writeFileSync(path, JSON.stringify(this.#self), { mode: 0o644 });
    this.#written(statSync(path).mtimeMs);
    setInterval(() => void this.#beat(), BEAT_MS).unref();
    void this.#removeDead();
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
      await mkdir(this.#folder, { recursive: true, mode: 0o755 });
      await writeFile(path, JSON.stringify(this.#self), { mode: 0o644 });
      this.#written((await stat(path)).mtimeMs);
    } catch {
      // Once it has been silent for too long it counts as dead: what else it does with this disk fails, and says so.
    } finally {
      this.#isWriting = false;
    }
  }

  #written(modifiedMs: number): void {
    this.#writtenMs = modifiedMs;
    this.#writtenAtMs = performance.now();
  }

  #hasEnded(owner: Owner | undefined): boolean {
    if (owner === undefined) return false;
    const { bootId, pidNamespace } = this.#self;
    if (owner.bootId !== bootId || owner.pidNamespace !== pidNamespace) return false;
    return startTicksOf(owner.pid) !== owner.startTicks;
  }

  async #removeDead(): Promise<void> {
    try {
      for (const owner of await readdir(this.#folder)) {
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
    // Being written right now.
    return undefined;
  }
}

/** Field 22 of /proc/PID/stat, counted from behind the name, which may hold anything (proc(5)). */
function startTicksOf(pid: number): string | undefined {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = line.slice(line.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended, and waits for its parent to notice.
    return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19];
  } catch {
    return undefined;
  }
}
