/** Finds out at the start what would only be noticed at an open: images that can never be cached. */

import type { CapacityLimits } from '../blobs/capacity.js';
import type { Catalog } from '../catalog/catalog.js';
import { counted } from '../counted.js';
import { formatBytes } from './amount.js';
import type { Settings } from './settings.js';

/** What a limit that is too small means, in words; undefined where every image fits. */
export function imagesThatCannotFit(
  catalog: Pick<Catalog, 'blobs'>,
  { limitBytes }: Pick<CapacityLimits, 'limitBytes'>,
  { cacheSize }: Pick<Settings, 'cacheSize'>,
): string | undefined {
  const sizes = [...catalog.blobs.values()].map(({ sizeBytes }) => sizeBytes).filter((size) => size > limitBytes);
  if (sizes.length === 0) return undefined;
  const largestBytes = sizes.reduce((largest, size) => Math.max(largest, size), 0);
  const limit = 'percent' in cacheSize ? `${cacheSize.percent}% of the disk` : formatBytes(limitBytes);
  return `${sizes.length.toLocaleString('en-US')} of ${counted(catalog.blobs.size, 'image')} can't be opened: larger than the whole cache may be (--cache-size, ${limit}); the largest has ${formatBytes(largestBytes)}`;
}
