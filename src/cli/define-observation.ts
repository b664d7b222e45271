/** The commands that show what a daemon does and has. */

import type { Command } from 'commander';

/** Adds `status` and `coverage`. */
export function defineObservation(tmaxfs: Command): void {
  tmaxfs
    .command('status')
    .description('what a daemon is doing')
    .argument('[mountpoint]', 'may be left out where there is one')
    .option('--json', 'print the document, stable and in full', false)
    .option('--watch', 'draw it again every two seconds', false)
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./status.js')).statusCommand(mountpoint, options),
    );

  tmaxfs
    .command('coverage')
    .description('which tasks can be opened; exit 1 unless every one can')
    .argument('[mountpoint]', 'may be left out where there is one')
    .option('--variant <name>', 'count only this one')
    .option('--tasks <file>', 'count only these tasks, one a line; "-" for standard input')
    .option('--json', 'print the document, stable and in full', false)
    .option('--tsv', 'print a line a task: variant, task, state, bytes, sha256, path, reason', false)
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./coverage.js')).coverageCommand(mountpoint, options),
    );
}
