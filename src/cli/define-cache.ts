/** The commands that say what stays on disk, and look after it. */

import type { Command } from 'commander';

const MOUNTPOINT = 'where it is mounted';
const NAMES = 'paths in the mount, variants, tasks, or sha256s';

/** Adds `pin`, `unpin` and `evict`. */
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
}
