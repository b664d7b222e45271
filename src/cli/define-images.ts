/** The commands that bring and prove images. */

import { type Command, Option } from 'commander';
import { defaultThreads } from '../daemon/settings.js';
import { VERIFY_LEVELS } from '../verify/verdict.js';
import { cacheOptions, DEFAULT_THREADS, poolOptions, withMountOptions } from './option.js';

/** Options of `mount` that say where images come from and how they are fetched, proven and written. */
const FETCHING = new Set(
  'repo revision pool catalog name cache-dir shared-cache cache-size reserve-free verify verify-threads source offline publish-reserve publish-size start-timeout connections max-fetches connect-timeout first-byte-timeout idle-timeout min-speed'.split(
    ' ',
  ),
);

/** Adds `verify`, `prefetch` and `seed`. After `mount`, whose options the last takes. */
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
    .action(async (options) => (await import('./verify.js')).verifyCommand(options));
  for (const one of [...cacheOptions(), ...poolOptions()]) verify.addOption(one);

  tmaxfs
    .command('prefetch')
    .description('fetch and prove images ahead of their first open; exit 1 if any fails')
    .argument('[mountpoint]', 'may be left out where there is one')
    .option('--variant <name>', 'all images of this variant, or of all below this folder')
    .option('--tasks <file>', 'the images of these tasks, one a line; "-" for standard input')
    .action(async (mountpoint: string | undefined, options) =>
      (await import('./prefetch.js')).prefetchCommand(mountpoint, options),
    );

  const seed = tmaxfs
    .command('seed')
    .description(
      'fetch and prove images, and write them to a directory or a registry; needs no mount; exit 1 if any fails',
    )
    .requiredOption(
      '--to <place>',
      'where they are written: "dir:/path", or "oci://host/name" ("oci+http:" without TLS)',
    )
    .option('--variant <name>', 'all images of this variant, or of all below this folder')
    .option('--tasks <file>', 'the images of these tasks, one a line; "-" for standard input')
    .action(async (options) => {
      const unused = tmaxfs.commands.find((one) => one.name() === 'mount')?.opts() ?? {};
      await (await import('./seed.js')).seedCommand({ ...unused, ...options });
    });
  withMountOptions(tmaxfs, seed, (name) => FETCHING.has(name));
}
