/**
 * Which task of a variant a row stands for. What names it most surely comes first:
 *
 *   1. the column that the user names (then nothing else counts);
 *   2. the present value, where its file name is a task of the variant (rows that were rewritten before);
 *   3. a column of the usual names, where it holds a task of the variant;
 *   4. the image: a tag or a file name, looked up among the images of the pool.
 *
 * A guess is never made: what could be several tasks with different images is left unresolved, with the reason.
 */

import { type ColumnPath, type Decide, textAt } from './rows.js';

/** What a mount knows of a variant. */
export interface VariantTasks {
  readonly variant: string;
  has(task: string): boolean;
  /** The path that a row is to hold. */
  pathOf(task: string): string;
  /**
   * The tasks of the first of these images (file names) that the pool has: those that show it in this variant, or where none does,
   * all that show it in another one, be they in this variant or not.
   */
  tasksOfImage(fileNames: readonly string[]): Promise<readonly string[]>;
  /** Whether all of these are tasks of the variant, and the same image. */
  areOneImage(tasks: readonly string[]): Promise<boolean>;
}

/** Tasks that a reason names. */
const MAX_NAMED = 3;
/** Names under which data sets keep a task's id, beside the image and at the top. */
const SIBLING_NAMES = ['task_id'];
const TOP_NAMES = ['task_id', 'instance_id', 'id'];

/** Every column that is looked at for a task's id. */
export function taskColumns(column: ColumnPath, named: ColumnPath | undefined): readonly ColumnPath[] {
  if (named !== undefined) return [named];
  return [...SIBLING_NAMES.map((name) => [...column.slice(0, -1), name]), ...TOP_NAMES.map((name) => [name])];
}

export function taskDecision(tasks: VariantTasks, column: ColumnPath, named: ColumnPath | undefined): Decide {
  const columns = taskColumns(column, named);
  return async (row, current) => {
    if (named !== undefined) return byNamedColumn(tasks, textAt(row, named), named);
    const present = current === undefined ? undefined : withoutSuffix(lastStep(current));
    if (present !== undefined && tasks.has(present)) return { image: tasks.pathOf(present) };
    for (const one of columns) {
      const task = textAt(row, one);
      if (task !== undefined && tasks.has(task)) return { image: tasks.pathOf(task) };
    }
    if (current === undefined) return { reason: 'it holds no text, and no column holds a task of the variant' };
    return byImage(tasks, current);
  };
}

function byNamedColumn(tasks: VariantTasks, task: string | undefined, column: ColumnPath) {
  if (task === undefined) return { reason: `${column.join('.')} holds no text` };
  const name = withoutSuffix(task);
  if (tasks.has(name)) return { image: tasks.pathOf(name) };
  return { reason: `${tasks.variant} has no task "${name.slice(0, 80)}"` };
}

async function byImage(tasks: VariantTasks, value: string) {
  const found = await tasks.tasksOfImage(imageFileNames(value));
  const [first] = found;
  if (first === undefined) return { reason: `neither a task of ${tasks.variant}, nor an image of one` };
  if (await tasks.areOneImage(found)) return { image: tasks.pathOf(first) };
  const shown = found.slice(0, MAX_NAMED).join(', ') + (found.length > MAX_NAMED ? ', ...' : '');
  if (found.length === 1) return { reason: `its task ${shown} is not in ${tasks.variant}` };
  return {
    reason: `its image stands for several tasks, with other images in ${tasks.variant}, or none (${shown}): name a --task-column`,
  };
}

/**
 * The file names that an image may have in the pool: of "hamishi740/swerl-tmax-v3:0a1b2c" it is
 * "hamishi740__swerl-tmax-v3__0a1b2c.sif"; of a path its last step.
 */
export function imageFileNames(value: string): readonly string[] {
  if (value.endsWith('.sif')) return [lastStep(value)];
  const reference = value.replace(/^[a-z]+:\/\//, '').replace(/@sha256:[0-9a-f]{64}$/, '');
  const [host = '', ...rest] = reference.split('/');
  // As Docker tells a registry from an owner.
  const isRegistry = rest.length > 0 && (host === 'localhost' || /[.:]/.test(host));
  const names = isRegistry ? [reference, rest.join('/')] : [reference];
  return names.map((name) => `${name.replaceAll('/', '__').replace(/:([^:]*)$/, '__$1')}.sif`);
}

function lastStep(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

function withoutSuffix(name: string): string {
  return name.endsWith('.sif') ? name.slice(0, -'.sif'.length) : name;
}
