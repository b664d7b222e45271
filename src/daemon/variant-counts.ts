/**
 * The figures of coverage alone, for what looks again and again: the same as those of coverage.ts, without a line for each task.
 * What only a new commit changes is worked out once for it.
 */

import type { BlobAddress, Catalog } from '../catalog/catalog.js';
import { type KnownRefusal, type OnDisk, standingOf, type VariantCoverage } from './coverage.js';

export interface VariantCounts extends Omit<VariantCoverage, 'resolvable' | 'unresolvable' | 'refused'> {
  readonly unresolvableTasks: number;
}

interface CountedVariant {
  readonly fixed: Pick<VariantCounts, 'variant' | 'tasks' | 'unresolvableTasks' | 'blobs' | 'bytes'>;
  /** Distinct. */
  readonly images: readonly BlobAddress[];
}

export class VariantCounter {
  #catalog: Pick<Catalog, 'variants'> | undefined;
  #variants: readonly CountedVariant[] = [];

  count(
    catalog: Pick<Catalog, 'variants'>,
    onDisk: OnDisk,
    refusals: ReadonlyMap<string, KnownRefusal>,
  ): readonly VariantCounts[] {
    if (this.#catalog !== catalog) {
      this.#variants = [...catalog.variants.values()].map(({ name, tasks, unresolvable }) => {
        // The catalog has one address of each blob.
        const images = [...new Set(tasks.values())];
        const bytes = images.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
        const counts = { tasks: tasks.size + unresolvable.size, unresolvableTasks: unresolvable.size };
        return { fixed: { variant: name, ...counts, blobs: images.length, bytes }, images };
      });
      this.#catalog = catalog;
    }
    return this.#variants.map(({ fixed, images }) => {
      let [readyBlobs, readyBytes, quarantinedBlobs] = [0, 0, 0];
      for (const { sha256, sizeBytes } of images) {
        const { state } = standingOf(onDisk(sha256), refusals.get(sha256));
        if (state === 'ready') {
          readyBlobs += 1;
          readyBytes += sizeBytes;
        } else if (state !== 'absent') quarantinedBlobs += 1;
      }
      return { ...fixed, readyBlobs, readyBytes, quarantinedBlobs };
    });
  }
}
