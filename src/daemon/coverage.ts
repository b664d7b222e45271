/**
 * Coverage: which tasks can be opened, as far as the catalog and the disk tell without fetching. First a line for each task,
 * then counts over them: over all, or over those that somebody asks for by name.
 */

import type { BlobAddress, Catalog } from '../catalog/catalog.js';
import { isWithin, parseTaskName, variantsIn } from './task-names.js';

/** What is known of one blob on this disk. */
export type OnDisk = (sha256: string) => { readonly isReady: boolean; readonly isQuarantined: boolean };

/** Why a blob is in quarantine, and whether only another commit can mend that. */
export interface KnownRefusal {
  readonly reason: string;
  readonly isFinal: boolean;
}

/**
 * `ready`: on disk and proven. `absent`: fetched by its first open. `quarantined`: refused for now, tried anew later. `refused`: broken
 * as it was published. `unresolvable`: the map names no image that could be had. `unknown`: asked for by name, and not in the pool.
 */
export type TaskState = 'ready' | 'absent' | 'quarantined' | 'refused' | 'unresolvable' | 'unknown';

export interface TaskCoverage {
  /** Null where it is unknown. */
  readonly variant: string | null;
  /** As it was asked for where it is unknown. */
  readonly task: string;
  readonly state: TaskState;
  /** Null where it is ready or absent. */
  readonly reason: string | null;
  /** Of its image, as are the others; null where there is none. */
  readonly path: string | null;
  readonly sha256: string | null;
  readonly sizeBytes: number | null;
}

export interface VariantCoverage {
  readonly variant: string;
  readonly tasks: number;
  readonly resolvable: number;
  readonly unresolvable: readonly { readonly task: string; readonly reason: string }[];
  /** Resolvable, and yet not to be opened: the image is broken as it was published. */
  readonly refused: readonly { readonly task: string; readonly reason: string }[];
  readonly blobs: number;
  readonly bytes: number;
  /** Distinct blobs that are on disk and proven. */
  readonly readyBlobs: number;
  readonly readyBytes: number;
  readonly quarantinedBlobs: number;
}

export interface Coverage {
  /** Of several pools, those of the first. */
  readonly repository: string;
  readonly commit: string;
  /** What is mounted; the name is "" for a pool that is the whole mount. */
  readonly pools: readonly { readonly name: string; readonly repository: string; readonly commit: string }[];
  readonly variants: readonly VariantCoverage[];
  /** Distinct blobs of the whole repository, or of what was asked for; so are `bytes` and `directories`. */
  readonly blobs: number;
  readonly bytes: number;
  readonly directories: readonly string[];
  /** Names that were asked for and that the pool does not have. */
  readonly unknown: readonly string[];
  /** What was left out of the catalog altogether. */
  readonly problems: readonly { readonly subject: string; readonly reason: string }[];
  readonly problemCount: number;
  /** Whether every task asked for can be opened as far as is known; where nothing was chosen, no name had to be left out either. */
  readonly isComplete: boolean;
}

/** What the document of a daemon is: with every task where that was asked for. */
export interface CoverageDocument extends Coverage {
  readonly tasks?: readonly TaskCoverage[];
}

/** Every task of the pool, or of the one variant or all below a folder. `refusals` by sha256. */
export function listTasks(
  { variants }: Pick<Catalog, 'variants'>,
  onDisk: OnDisk,
  refusals: ReadonlyMap<string, KnownRefusal>,
  only?: string,
): readonly TaskCoverage[] {
  const tasks: TaskCoverage[] = [];
  for (const variant of variants.values()) {
    if (!isWithin(variant.name, only)) continue;
    for (const [task, { path, sha256, sizeBytes }] of variant.tasks) {
      const standing = standingOf(onDisk(sha256), refusals.get(sha256));
      tasks.push({ variant: variant.name, task, ...standing, path, sha256, sizeBytes });
    }
    for (const [task, reason] of variant.unresolvable) {
      tasks.push({
        variant: variant.name,
        task,
        state: 'unresolvable',
        reason,
        path: null,
        sha256: null,
        sizeBytes: null,
      });
    }
  }
  return tasks;
}

/** Of a task whose image the catalog has. */
export function standingOf(
  { isReady, isQuarantined }: ReturnType<OnDisk>,
  refusal: KnownRefusal | undefined,
): Pick<TaskCoverage, 'state' | 'reason'> {
  if (refusal?.isFinal) return { state: 'refused', reason: refusal.reason };
  if (isReady) return { state: 'ready', reason: null };
  return isQuarantined ? { state: 'quarantined', reason: refusal?.reason ?? null } : { state: 'absent', reason: null };
}

/** Those that the names stand for, as in a list of tasks, each once; a name that stands for none is an unknown one. */
export function chooseTasks(tasks: readonly TaskCoverage[], names: readonly string[]): readonly TaskCoverage[] {
  const byTask = new Map<string, TaskCoverage[]>();
  for (const one of tasks) byTask.set(one.task, [...(byTask.get(one.task) ?? []), one]);
  const variants = [...new Set(tasks.flatMap(({ variant }) => variant ?? []))];
  const chosen = new Set<TaskCoverage>();
  const unknown = new Map<string, TaskCoverage>();
  for (const name of names) {
    const { folder, task } = parseTaskName(name);
    const among = new Set<string | null>(variantsIn(variants, folder));
    const found = (byTask.get(task) ?? []).filter(({ variant }) => among.has(variant));
    for (const one of found) chosen.add(one);
    if (found.length > 0) continue;
    const reason = 'no such task in the pool at this commit';
    const image = { path: null, sha256: null, sizeBytes: null };
    unknown.set(name, { variant: null, task: name, state: 'unknown', reason, ...image });
  }
  return [...chosen, ...unknown.values()];
}

/** Coverage of a whole pool. */
export function countPool(catalog: Catalog & Pick<Coverage, 'pools'>, tasks: readonly TaskCoverage[]): Coverage {
  const { repository, commit, pools, directories, problems, problemCount } = catalog;
  const pool = { repository, commit, pools, problems, problemCount };
  const counted = countTasks(pool, tasks, [...catalog.variants.keys()]);
  const { blobs, bytes } = weigh([...catalog.blobs.values()]);
  return { ...counted, blobs, bytes, directories, isComplete: counted.isComplete && problemCount === 0 };
}

/** Coverage of the tasks that were chosen. `variants`: those that are counted even where they have no task. */
export function countTasks(
  pool: Pick<Coverage, 'repository' | 'commit' | 'pools' | 'problems' | 'problemCount'>,
  tasks: readonly TaskCoverage[],
  variants: readonly string[] = [],
): Coverage {
  const byVariant = new Map<string, TaskCoverage[]>(variants.map((name) => [name, []]));
  for (const one of tasks) {
    if (one.variant === null) continue;
    const others = byVariant.get(one.variant);
    if (others === undefined) byVariant.set(one.variant, [one]);
    else others.push(one);
  }
  const { repository, commit, pools, problems, problemCount } = pool;
  const isOpenable = ({ state }: TaskCoverage) =>
    state !== 'unresolvable' && state !== 'refused' && state !== 'unknown';
  return {
    repository,
    commit,
    pools,
    variants: [...byVariant].map(([variant, own]) => countVariant(variant, own)),
    ...weigh(imagesOf(tasks)),
    directories: directoriesOf(tasks),
    unknown: tasks.filter(({ state }) => state === 'unknown').map(({ task }) => task),
    problems,
    problemCount,
    isComplete: byVariant.size > 0 && tasks.every(isOpenable),
  };
}

function countVariant(variant: string, tasks: readonly TaskCoverage[]): VariantCoverage {
  const images = imagesOf(tasks);
  const ready = weigh(images.filter(({ state }) => state === 'ready'));
  const withState = (wanted: TaskState) =>
    tasks.filter(({ state }) => state === wanted).map(({ task, reason }) => ({ task, reason: reason ?? '' }));
  const unresolvable = withState('unresolvable');
  return {
    variant,
    tasks: tasks.length,
    resolvable: tasks.length - unresolvable.length,
    unresolvable,
    refused: withState('refused'),
    ...weigh(images),
    readyBlobs: ready.blobs,
    readyBytes: ready.bytes,
    quarantinedBlobs: images.filter(({ state }) => state === 'quarantined' || state === 'refused').length,
  };
}

/** A task for each distinct blob. */
function imagesOf(tasks: readonly TaskCoverage[]): readonly TaskCoverage[] {
  const images = new Map<string, TaskCoverage>();
  for (const one of tasks) if (one.sha256 !== null) images.set(one.sha256, one);
  return [...images.values()];
}

function weigh(images: readonly (TaskCoverage | BlobAddress)[]): { readonly blobs: number; readonly bytes: number } {
  return { blobs: images.length, bytes: images.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0) };
}

function directoriesOf(tasks: readonly TaskCoverage[]): readonly string[] {
  const directories = new Set<string>();
  for (const { path } of tasks) if (path !== null) directories.add(path.slice(0, Math.max(0, path.lastIndexOf('/'))));
  return [...directories].sort();
}
