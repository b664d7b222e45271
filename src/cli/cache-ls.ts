/** `tmaxfs cache ls`: every image in a cache directory, with or without a daemon on it. */

import { formatBytes } from '../daemon/amount.js';
import { type ListedBlob, listCache } from '../daemon/cache-listing.js';
import { type CacheWords, openChosenCache } from './choose-cache.js';
import { formatTable, printable } from './table.js';

export interface CacheCommandOptions extends CacheWords {
  readonly json: boolean;
}

/** Errors: ENOENT no cache there; EPERM an unsafe or another user's one. */
export async function cacheLsCommand(options: CacheCommandOptions): Promise<void> {
  const store = await openChosenCache(options);
  const listing = await listCache(store);
  process.stdout.write(options.json ? `${JSON.stringify(listing, null, 2)}\n` : printable(describe(listing.blobs)));
}

function describe(blobs: readonly ListedBlob[]): string {
  const header = ['sha256', 'size', 'last use', 'proven', 'pinned', 'open'];
  const rows = blobs.map(({ sha256, sizeBytes, usedAt, level, pinned, open }) => {
    const used = `${usedAt.slice(0, 10)} ${usedAt.slice(11, 16)}Z`;
    return [sha256, formatBytes(sizeBytes), used, level ?? 'no', pinned ? 'yes' : '-', open ? 'yes' : '-'];
  });
  const [head = '', ...lines] = formatTable(header, rows).split('\n');
  // Names are as long as they like: the last column has no width.
  return [`${head}  name`, ...lines.map((line, index) => `${line}  ${nameOf(blobs[index])}`)].map(withNewline).join('');
}

function nameOf(blob: ListedBlob | undefined): string {
  const [first, ...others] = blob?.names ?? [];
  if (first === undefined) return blob?.path ?? '-';
  return `${first}${others.length > 0 ? ` and ${others.length} more` : ''}`;
}

function withNewline(line: string): string {
  return `${line}\n`;
}
