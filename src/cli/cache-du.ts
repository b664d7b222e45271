/** `tmaxfs cache du`: what a cache directory takes on its disk, and what it may. */

import { formatBytes } from '../daemon/amount.js';
import { type CacheUse, measureCache, type Taken } from '../daemon/cache-listing.js';
import { daemonsOn } from '../daemon/daemons-on-cache.js';
import type { CacheCommandOptions } from './cache-ls.js';
import { openChosenCache } from './choose-cache.js';
import { formatTable, printable } from './table.js';

/** Errors: ENOENT no cache there; EPERM an unsafe or another user's one. */
export async function cacheDuCommand(options: CacheCommandOptions): Promise<void> {
  const store = await openChosenCache(options);
  const use = await measureCache(store, await daemonsOn(store.layout.root));
  process.stdout.write(options.json ? `${JSON.stringify(use, null, 2)}\n` : printable(describe(use)));
}

function describe(use: CacheUse): string {
  const row = (name: string, { files, bytes }: Taken) => [name, files.toLocaleString('en-US'), formatBytes(bytes)];
  const rows = [
    row('images', use.blobs),
    row('  of them pinned', use.blobs.pinned),
    row('  of them open', use.blobs.open),
    row('partial files', use.partials),
    row('damaged images, replaced while open', use.retired),
    row('proofs', use.proofs),
    row('refusals', use.quarantine),
    row('catalogs', use.catalogs),
    ['in all', '', formatBytes(use.bytes)],
  ];
  const limits = use.daemons.map(({ mountpoint, pid, limitBytes, reservedBytes }) => {
    const reserved = reservedBytes > 0 ? `, ${formatBytes(reservedBytes)} of it reserved for fetches` : '';
    return `limit ${formatBytes(limitBytes)}${reserved} (${mountpoint}, pid ${pid})`;
  });
  return [
    formatTable([use.directory, 'files', 'size'], rows),
    '',
    ...(limits.length > 0 ? limits : ['no daemon serves from it']),
    `${formatBytes(use.diskAvailableBytes)} free on its disk`,
    '',
  ].join('\n');
}
