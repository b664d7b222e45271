/** What a mount's tree says of a variant's tasks: by names and inode numbers alone. Nothing is opened, so nothing is fetched. */

import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { VariantTasks } from '../datasets/task-of-row.js';
import { TmaxError } from '../errors.js';
import { POOL_VIEW } from '../filesystem/tree.js';
import { within } from './deadline.js';

/** Looking at all of a pool of 16,000 images takes seconds; a daemon that hangs takes for ever. */
const LOOK_LIMIT_MS = 60_000;
const CALLS_AT_ONCE = 64;
const SUFFIX = '.sif';

export class MountedVariant implements VariantTasks {
  readonly variant: string;
  readonly #mountpoint: string;
  /** As rows are to have it. */
  readonly #shownMountpoint: string;
  readonly #tasks: ReadonlySet<string>;
  #images: Promise<ReadonlyMap<string, bigint>> | undefined;
  #own: Promise<ReadonlyMap<string, bigint>> | undefined;
  #byImage: Promise<ReadonlyMap<bigint, readonly string[]>> | undefined;
  #elsewhere: Promise<ReadonlyMap<bigint, readonly string[]>> | undefined;

  private constructor(mountpoint: string, shownMountpoint: string, variant: string, tasks: ReadonlySet<string>) {
    this.#mountpoint = mountpoint;
    this.#shownMountpoint = shownMountpoint;
    this.variant = variant;
    this.#tasks = tasks;
  }

  /** Errors: EINVAL the mount has no such variant; ETIMEDOUT. */
  static async open(mountpoint: string, shownMountpoint: string, variant: string): Promise<MountedVariant> {
    const variants = await look(mountpoint, readdir(mountpoint));
    if (!variants.includes(variant)) {
      const message = `${mountpoint} has no variant "${variant}"; it has ${variants.join(', ')}`;
      throw new TmaxError('EINVAL', message, { source: 'cli' });
    }
    const names = await look(mountpoint, readdir(join(mountpoint, variant)));
    return new MountedVariant(mountpoint, shownMountpoint, variant, new Set(names.map(taskOf)));
  }

  has(task: string): boolean {
    return this.#tasks.has(task);
  }

  pathOf(task: string): string {
    return join(this.#shownMountpoint, this.variant, `${task}${SUFFIX}`);
  }

  async tasksOfImage(fileNames: readonly string[]): Promise<readonly string[]> {
    this.#images ??= this.#inodes(POOL_VIEW);
    const images = await this.#images;
    const known = fileNames.map((name) => images.get(name)).find((inode) => inode !== undefined);
    if (known === undefined) return [];
    this.#byImage ??= this.#tasksByInode([this.variant]);
    const own = (await this.#byImage).get(known);
    if (own !== undefined) return own;
    // The variant may show another image, derived from that one, under the same task.
    this.#elsewhere ??= this.#otherVariants().then((others) => this.#tasksByInode(others));
    return [...new Set((await this.#elsewhere).get(known) ?? [])];
  }

  async areOneImage(tasks: readonly string[]): Promise<boolean> {
    if (!tasks.every((task) => this.has(task))) return false;
    if (tasks.length === 1) return true;
    this.#own ??= this.#inodes(this.variant);
    const own = await this.#own;
    return new Set(tasks.map((task) => own.get(`${task}${SUFFIX}`))).size === 1;
  }

  async #otherVariants(): Promise<readonly string[]> {
    const views = await look(this.#mountpoint, readdir(this.#mountpoint));
    return views.filter((view) => view !== this.variant && view !== POOL_VIEW);
  }

  async #tasksByInode(views: readonly string[]): Promise<ReadonlyMap<bigint, readonly string[]>> {
    const tasks = new Map<bigint, string[]>();
    for (const view of views) {
      for (const [name, inode] of await this.#inodes(view)) {
        const same = tasks.get(inode);
        if (same === undefined) tasks.set(inode, [taskOf(name)]);
        else same.push(taskOf(name));
      }
    }
    return tasks;
  }

  /** Of one folder's files: an image has one number under every name. */
  #inodes(view: string): Promise<ReadonlyMap<string, bigint>> {
    const folder = join(this.#mountpoint, view);
    return look(this.#mountpoint, inodesOf(folder));
  }
}

async function inodesOf(folder: string): Promise<ReadonlyMap<string, bigint>> {
  const names = await readdir(folder);
  const inodes = new Map<string, bigint>();
  for (let start = 0; start < names.length; start += CALLS_AT_ONCE) {
    const some = names.slice(start, start + CALLS_AT_ONCE);
    const stats = await Promise.all(some.map((name) => lstat(join(folder, name), { bigint: true })));
    for (const [index, name] of some.entries()) inodes.set(name, stats[index]?.ino ?? 0n);
  }
  return inodes;
}

function look<Result>(mountpoint: string, work: Promise<Result>): Promise<Result> {
  return within(
    work,
    LOOK_LIMIT_MS,
    `${mountpoint} did not answer within ${LOOK_LIMIT_MS / 1000} s; see "tmaxfs doctor"`,
  );
}

function taskOf(name: string): string {
  return name.endsWith(SUFFIX) ? name.slice(0, -SUFFIX.length) : name;
}
