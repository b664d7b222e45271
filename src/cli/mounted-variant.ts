/** What a mount's tree says of a variant's tasks: by names and inode numbers alone. Nothing is opened, so nothing is fetched. */

import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import type { VariantTasks } from '../datasets/task-of-row.js';
import { TmaxError } from '../errors.js';
import { POOL_VIEW } from '../filesystem/tree.js';
import { within } from './deadline.js';
import { isFlatView, type MountedFolder, mountedFolders } from './mounted-folders.js';

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
  /** Of the whole mount. */
  readonly #folders: readonly MountedFolder[];
  #images: Promise<ReadonlyMap<string, bigint>> | undefined;
  #own: Promise<ReadonlyMap<string, bigint>> | undefined;
  #byImage: Promise<ReadonlyMap<bigint, readonly string[]>> | undefined;
  #elsewhere: Promise<ReadonlyMap<bigint, readonly string[]>> | undefined;

  private constructor(
    mountpoint: string,
    shownMountpoint: string,
    { path, files }: MountedFolder,
    folders: readonly MountedFolder[],
  ) {
    this.#mountpoint = mountpoint;
    this.#shownMountpoint = shownMountpoint;
    this.variant = path;
    this.#tasks = new Set(files.map(taskOf));
    this.#folders = folders;
  }

  /** Errors: EINVAL the mount has no such variant; ETIMEDOUT. */
  static async open(mountpoint: string, shownMountpoint: string, variant: string): Promise<MountedVariant> {
    const folders = await look(mountpoint, mountedFolders(mountpoint));
    const folder = folders.find(({ path }) => path === variant);
    if (folder === undefined) {
      const message = `${mountpoint} has no variant "${variant}"; it has ${folders.map(({ path }) => path).join(', ')}`;
      throw new TmaxError('EINVAL', message, { source: 'cli' });
    }
    return new MountedVariant(mountpoint, shownMountpoint, folder, folders);
  }

  has(task: string): boolean {
    return this.#tasks.has(task);
  }

  pathOf(task: string): string {
    return join(this.#shownMountpoint, this.variant, `${task}${SUFFIX}`);
  }

  async tasksOfImage(fileNames: readonly string[]): Promise<readonly string[]> {
    this.#images ??= this.#allImages();
    const images = await this.#images;
    const known = fileNames.map((name) => images.get(name)).find((inode) => inode !== undefined);
    if (known === undefined) return [];
    this.#byImage ??= this.#tasksByInode([this.variant]);
    const own = (await this.#byImage).get(known);
    if (own !== undefined) return own;
    // The variant may show another image, derived from that one, under the same task.
    this.#elsewhere ??= this.#tasksByInode(this.#otherVariants());
    return [...new Set((await this.#elsewhere).get(known) ?? [])];
  }

  async areOneImage(tasks: readonly string[]): Promise<boolean> {
    if (!tasks.every((task) => this.has(task))) return false;
    if (tasks.length === 1) return true;
    this.#own ??= this.#inodes(this.variant);
    const own = await this.#own;
    return new Set(tasks.map((task) => own.get(`${task}${SUFFIX}`))).size === 1;
  }

  #otherVariants(): readonly string[] {
    const paths = this.#folders.map(({ path }) => path);
    return paths.filter((path) => path !== this.variant && !isFlatView(path));
  }

  /** Of the flat views, the one of this variant's own pool first. */
  async #allImages(): Promise<ReadonlyMap<string, bigint>> {
    const views = this.#folders.map(({ path }) => path).filter(isFlatView);
    const isOwn = (view: string) => this.variant.startsWith(view.slice(0, -POOL_VIEW.length));
    const images = new Map<string, bigint>();
    for (const view of [...views.filter(isOwn), ...views.filter((one) => !isOwn(one))]) {
      for (const [name, inode] of await this.#inodes(view)) if (!images.has(name)) images.set(name, inode);
    }
    return images;
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
    const names = this.#folders.find(({ path }) => path === view)?.files ?? [];
    return look(this.#mountpoint, inodesOf(join(this.#mountpoint, view), names));
  }
}

async function inodesOf(folder: string, names: readonly string[]): Promise<ReadonlyMap<string, bigint>> {
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
