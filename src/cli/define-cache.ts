/** The commands that say what stays on disk, and look after it. */

import type { Command } from 'commander';
import { cacheOptions } from './option.js';

const MOUNTPOINT = 'where it is mounted';
const NAMES = 'paths in the mount, variants, tasks, or sha256s';

/** Adds `pin`, `unpin`, `evict` and `cache`. */
export function defineCache(tmaxfs: Command): void {
  tmaxfs
    .command('pin')
    .description('never evict these images, on disk or not; exit 1 if one does not exist')
    .argument('<mountpoint>', MOUNTPOINT)
    .argument('<names...>', NAMES)
    .action(async (mountpoint: string, names: string[]) => (await import('./keep.js')).pinCommand(mountpoint, names));

  tmaxfs
    .command('unpin')
    .description('let these images be evicted again; exit 1 if one does not exist')
    .argument('<mountpoint>', MOUNTPOINT)
    .argument('<names...>', NAMES)
    .action(async (mountpoint: string, names: string[]) => (await import('./keep.js')).unpinCommand(mountpoint, names));

  tmaxfs
    .command('evict')
    .description('remove these images from disk; exit 1 if one is open or pinned, and so stays')
    .argument('<mountpoint>', MOUNTPOINT)
    .argument('<names...>', NAMES)
    .action(async (mountpoint: string, names: string[]) => (await import('./keep.js')).evictCommand(mountpoint, names));

  const cache = tmaxfs.command('cache').description('look at a cache directory, or clean it; no daemon is needed');
  const ls = cache
    .command('ls')
    .description('every image in it, the one that is evicted next first')
    .option('--json', 'print the document, stable and in full', false)
    .action(async (options) => (await import('./cache-ls.js')).cacheLsCommand(options));
  const du = cache
    .command('du')
    .description('what it takes on its disk, and may take')
    .option('--json', 'print the document, stable and in full', false)
    .action(async (options) => (await import('./cache-du.js')).cacheDuCommand(options));
  const gc = cache
    .command('gc')
    .description('remove what is of no use: partial files that nobody is fetching, proofs without image, old catalogs')
    .option('--unlisted', 'also images that no daemon shows, and no revision known here, as after one has moved', false)
    .option('--json', 'print the document, stable and in full', false)
    .action(async (options) => (await import('./cache-gc.js')).cacheGcCommand(options));
  for (const command of [ls, du, gc]) for (const one of cacheOptions()) command.addOption(one);
}
