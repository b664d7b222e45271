/** One line on what a daemon has and does, as `systemctl status` shows it. */

import type { BlobCacheStatistics } from '../blobs/blob-report.js';
import type { Catalog } from '../catalog/catalog.js';
import { counted } from '../counted.js';
import { formatBytes } from './amount.js';
import type { FollowReport } from './catalog-follower.js';

/** Variants that are named; a pool may have any number. */
const MAX_VARIANTS = 4;

export interface ActivityParts {
  readonly catalog: Pick<Catalog, 'variants'>;
  readonly follow: Pick<FollowReport, 'failure'>;
  readonly blobs: Pick<BlobCacheStatistics, 'use' | 'flights' | 'quarantine'>;
  readonly waitingOpens: number;
}

/** "solvable: 6,968 tasks · 3 fetches, 2 opens waiting · 41.0 GiB of 200 GiB", and what is wrong, if anything is. */
export function describeActivity({ catalog, follow, blobs, waitingOpens }: ActivityParts): string {
  const variants = [...catalog.variants.values()].map(({ name, tasks }) => `${name}: ${counted(tasks.size, 'task')}`);
  const more = variants.length > MAX_VARIANTS ? [`${variants.length - MAX_VARIANTS} more`] : [];
  const waiting = waitingOpens > 0 ? `, ${counted(waitingOpens, 'open')} waiting` : '';
  const parts = [
    [...variants.slice(0, MAX_VARIANTS), ...more].join(', '),
    `${counted(blobs.flights.length, 'fetch', 'fetches')}${waiting}`,
    `${formatBytes(blobs.use.usedBytes)} of ${formatBytes(blobs.use.limitBytes)}`,
  ];
  if (blobs.quarantine.length > 0) parts.push(`${counted(blobs.quarantine.length, 'image')} refused`);
  if (follow.failure !== null) parts.push(`the commit may be old (${follow.failure.errno})`);
  return parts.join(' · ');
}
