/** `tmaxfs coverage`: which tasks can be opened, as far as is known without fetching, for people and preflight scripts. */

import { formatBytes } from '../daemon/amount.js';
import { askDaemon } from '../daemon/control-client.js';
import {
  type Coverage,
  type CoverageDocument,
  chooseTasks,
  countTasks,
  type TaskCoverage,
} from '../daemon/coverage.js';
import { TmaxError } from '../errors.js';
import { chooseMount } from './choose-mount.js';
import { formatTable, printable } from './table.js';
import { readTaskList } from './task-list.js';

export interface CoverageCommandOptions {
  readonly variant?: string;
  /** A file with one task a line, "-" for standard input. */
  readonly tasks?: string;
  readonly json: boolean;
  readonly tsv: boolean;
}

/**
 * Prints coverage, of all tasks or of those chosen, and sets exit code 1 unless every one can be opened.
 * Errors: those of `askDaemon`; EINVAL no such variant, or an empty list.
 */
export async function coverageCommand(named: string | undefined, options: CoverageCommandOptions): Promise<void> {
  const { variant, tasks: file, json, tsv } = options;
  if (json && tsv) throw new TmaxError('EINVAL', '--json and --tsv exclude each other', { source: 'cli' });
  const mountpoint = chooseMount(named);
  const names = file === undefined ? undefined : await readTaskList(file);
  // A preflight that looks at nothing would find nothing amiss.
  if (names?.length === 0) throw new TmaxError('EINVAL', 'no task is in the list', { source: 'cli' });
  const query = new URLSearchParams({ ...(variant === undefined ? {} : { variant }) });
  if (tsv || names !== undefined) query.set('tasks', 'all');
  // The daemon is of this package: its documents are of our own types.
  const { tasks = [], ...all } = (await askDaemon(mountpoint, `/coverage?${query}`)) as CoverageDocument;
  if (variant !== undefined && all.variants.length === 0) {
    throw new TmaxError('EINVAL', `the pool has no variant "${variant}"`, { source: 'cli' });
  }
  const chosen = names === undefined ? tasks : chooseTasks(tasks, names);
  const coverage = names === undefined ? all : countTasks(all, chosen);
  const { stdout } = process;
  if (tsv) for (const task of chosen) stdout.write(tsvLine(task));
  else
    stdout.write(json ? `${JSON.stringify(coverage, null, 2)}\n` : printable(describe(coverage, names === undefined)));
  if (!coverage.isComplete) process.exitCode = 1;
}

/** Variant, task, state, size in bytes, sha256, path, reason; what there is none of is empty. No field holds a tab or a line end. */
function tsvLine({ variant, task, state, sizeBytes, sha256, path, reason }: TaskCoverage): string {
  const fields = [variant, task, state, sizeBytes, sha256, path, reason].map((field) => printable(String(field ?? '')));
  return `${fields.map((field) => field.replaceAll('\n', '?')).join('\t')}\n`;
}

/** Names that were left out of the catalog are told where all of it is asked for. */
function describe(coverage: Coverage, isWhole: boolean): string {
  const count = (value: number) => value.toLocaleString('en-US');
  const rows = coverage.variants.map((variant) => [
    variant.variant,
    count(variant.tasks),
    count(variant.resolvable),
    count(variant.unresolvable.length),
    count(variant.refused.length),
    count(variant.blobs),
    formatBytes(variant.bytes),
    count(variant.readyBlobs),
    formatBytes(variant.readyBytes),
    count(variant.quarantinedBlobs),
  ]);
  const header = [
    'variant',
    'tasks',
    'resolvable',
    'unresolvable',
    'refused',
    'blobs',
    'size',
    'on disk',
    'size on disk',
    'quarantined',
  ];
  const lines = [
    ...coverage.pools.map(
      ({ name, repository, commit }) => `${name === '' ? '' : `${name}: `}${repository} at ${commit}`,
    ),
    '',
    formatTable(header, rows),
    '',
    `distinct blobs in all: ${count(coverage.blobs)} (${formatBytes(coverage.bytes)}); directories: ` +
      coverage.directories.map((directory) => directory || '(root)').join(', '),
  ];
  for (const { variant, unresolvable, refused } of coverage.variants) {
    for (const { task, reason } of unresolvable) lines.push(`unresolvable: ${variant}/${task}: ${reason}`);
    for (const { task, reason } of refused) lines.push(`refused: ${variant}/${task}: ${reason}`);
  }
  for (const name of coverage.unknown) lines.push(`unknown: ${name}: no such task in the pool at this commit`);
  if (!isWhole) return `${lines.join('\n')}\n`;
  const named = coverage.problems.filter(({ subject }) => !subject.startsWith('task "') || !coverage.variants.length);
  for (const { subject, reason } of named) lines.push(`left out: ${subject}: ${reason}`);
  return `${lines.join('\n')}\n`;
}
