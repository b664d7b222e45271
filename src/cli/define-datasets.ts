/** The command that points a data set at a mount. */

import type { Command } from 'commander';

/** Adds `rewrite`. */
export function defineDatasets(tmaxfs: Command): void {
  tmaxfs
    .command('rewrite')
    .description(
      'write the absolute paths of a mount into a data set; exit 1, and no output, unless every row resolves',
    )
    .argument('<dataset>', 'JSON lines or Parquet')
    .requiredOption('--variant <name>', 'whose images the rows are to name')
    .requiredOption('--output <file>', 'what is written; never the data set itself')
    .option('--mount <folder>', 'absolute path of the mount, as rows are to have it (default: the only one)')
    .option('--column <name>', 'which column names the image; a dot steps into a struct', 'env_config.image')
    .option(
      '--task-column <name>',
      'which column holds the task id (default: found by the usual names, or by the image)',
    )
    .action(async (input: string, options) => (await import('./rewrite.js')).rewriteCommand(input, options));
}
