/** The commands that bring and prove images. */

import { type Command, Option } from 'commander';
import { defaultThreads } from '../daemon/settings.js';
import { VERIFY_LEVELS } from '../verify/verdict.js';
import { cacheDirectoryOption, DEFAULT_THREADS, poolOptions } from './option.js';

/** Adds `verify` and `prefetch`. */
export function defineImages(tmaxfs: Command): void {
  const verify = tmaxfs
    .command('verify')
    .description('prove again what is on this disk; exit 1 if any image fails')
    .option('--variant <name>', 'only the images of this variant, or of all below this folder')
    .option('--task <id>', 'only the image of this task')
    .addOption(new Option('--level <level>', 'how deep').choices(VERIFY_LEVELS).default('structure'))
    .option('--jsonl <file>', 'write one JSON line a task; "-" for standard output')
    .addOption(
      new Option('--jobs <number>', 'images proven at a time').default(String(defaultThreads()), DEFAULT_THREADS),
    )
    .option(
      '--retry',
      'also forget which published images were refused, so that the next open fetches them anew',
      false,
    )
    .addOption(cacheDirectoryOption())
    .action(async (options) => (await import('./verify.js')).verifyCommand(options));
  for (const one of poolOptions()) verify.addOption(one);

  tmaxfs
    .command('prefetch')
    .description('fetch and prove images ahead of their first open; exit 1 if any fails')
    .argument('[mountpoint]', 'may be left out where there is one')
    .option('--variant <name>', 'all images of this variant, or of all below this folder')
    .option('--tasks <file>', 'the images of these tasks, one a line; "-" for standard input')
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./prefetch.js')).prefetchCommand(mountpoint, options),
    );
}
