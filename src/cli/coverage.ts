/** `tmaxfs coverage`: which tasks can be opened, as far as is known without fetching, for people and preflight scripts. */

import { formatBytes } from '../daemon/amount.js';
import { askDaemon } from '../daemon/control-client.js';
import type { Coverage } from '../daemon/coverage.js';
import { TmaxError } from '../errors.js';
import { chooseMount } from './choose-mount.js';
import { formatTable, printable } from './table.js';

/** Prints coverage and sets exit code 1 unless every task can be opened. Errors: those of `askDaemon`; EINVAL no such variant. */
export async function coverageCommand(
  named: string | undefined,
  options: { readonly variant?: string; readonly json: boolean },
): Promise<void> {
  const mountpoint = chooseMount(named);
  const query = options.variant === undefined ? '' : `?variant=${encodeURIComponent(options.variant)}`;
  // The daemon is of this package: its documents are of our own types.
  const coverage = (await askDaemon(mountpoint, `/coverage${query}`)) as Coverage;
  if (options.variant !== undefined && coverage.variants.length === 0) {
    throw new TmaxError('EINVAL', `the pool has no variant "${options.variant}"`, { source: 'cli' });
  }
  process.stdout.write(options.json ? `${JSON.stringify(coverage, null, 2)}\n` : printable(describe(coverage)));
  if (!coverage.isComplete) process.exitCode = 1;
}

function describe(coverage: Coverage): string {
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
    `${coverage.repository} at ${coverage.commit}`,
    '',
    formatTable(header, rows),
    '',
    `${count(coverage.blobs)} distinct blobs in all (${formatBytes(coverage.bytes)}), found in ${coverage.directories.length} directories: ` +
      coverage.directories.map((directory) => directory || '(root)').join(', '),
  ];
  for (const { variant, unresolvable, refused } of coverage.variants) {
    for (const { task, reason } of unresolvable) lines.push(`unresolvable: ${variant}/${task}: ${reason}`);
    for (const { task, reason } of refused) lines.push(`refused: ${variant}/${task}: ${reason}`);
  }
  const named = coverage.problems.filter(({ subject }) => !subject.startsWith('task "') || !coverage.variants.length);
  for (const { subject, reason } of named) lines.push(`left out: ${subject}: ${reason}`);
  return `${lines.join('\n')}\n`;
}
