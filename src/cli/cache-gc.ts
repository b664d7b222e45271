/** `tmaxfs cache gc`: takes away from a cache directory what is of no use, beside any daemon on it. */

import type { Removed } from '../blobs/cleaning.js';
import { formatBytes } from '../daemon/amount.js';
import { type CacheCleaning, cleanCache } from '../daemon/cache-cleaning.js';
import { daemonsOn } from '../daemon/daemons-on-cache.js';
import type { CacheCommandOptions } from './cache-ls.js';
import { openChosenCache } from './choose-cache.js';
import { printable } from './table.js';

/** Errors: ENOENT no cache, or no catalog, there; EPERM an unsafe or another user's one; those of the disk. */
export async function cacheGcCommand(options: CacheCommandOptions & { readonly unlisted: boolean }): Promise<void> {
  const store = await openChosenCache(options);
  const daemons = await daemonsOn(store.layout.root);
  const shown = new Set(daemons.flatMap(({ pools }) => pools.map(({ commit }) => commit)));
  const cleaning = await cleanCache(store, { shown, unlisted: options.unlisted });
  process.stdout.write(options.json ? `${JSON.stringify(cleaning, null, 2)}\n` : printable(describe(cleaning)));
}

function describe({
  partials,
  retired,
  proofs,
  temporaryFiles,
  runningFetches,
  catalogs,
  unlisted,
}: CacheCleaning): string {
  const line = (what: string, { files, bytes }: Removed) => `removed ${files} ${what} (${formatBytes(bytes)})\n`;
  const running = runningFetches > 0 ? `kept ${runningFetches} partial files: they are just being fetched\n` : '';
  return [
    line('partial files that nobody is fetching', partials),
    running,
    line('damaged images that were replaced while open', retired),
    line('proofs of images that are gone', proofs),
    line('catalogs that are no longer used', catalogs),
    line('temporary files', temporaryFiles),
    unlisted === null ? '' : line('images that nothing shows any more', unlisted),
    unlisted === null || unlisted.keptPinned === 0 ? '' : `kept ${unlisted.keptPinned} of these: they are pinned\n`,
    unlisted === null || unlisted.keptInUse === 0 ? '' : `kept ${unlisted.keptInUse} of these: they are open\n`,
  ].join('');
}
