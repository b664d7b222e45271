/** Coverage: for each variant, how many of its tasks can be opened, counted from the catalog and from what lies on disk. */

import type { Catalog, Variant } from '../catalog/catalog.js';

/** What is known of one blob on this disk. */
export type OnDisk = (sha256: string) => { readonly isReady: boolean; readonly isQuarantined: boolean };

export interface VariantCoverage {
  readonly variant: string;
  readonly tasks: number;
  readonly resolvable: number;
  readonly unresolvable: readonly { readonly task: string; readonly reason: string }[];
  readonly blobs: number;
  readonly bytes: number;
  /** Distinct blobs that are on disk and proven. */
  readonly readyBlobs: number;
  readonly readyBytes: number;
  readonly quarantinedBlobs: number;
}

export interface Coverage {
  readonly repository: string;
  readonly commit: string;
  readonly variants: readonly VariantCoverage[];
  /** Distinct blobs of the whole repository. */
  readonly blobs: number;
  readonly bytes: number;
  readonly directories: readonly string[];
  /** What was left out of the catalog altogether. */
  readonly problems: readonly { readonly subject: string; readonly reason: string }[];
  readonly problemCount: number;
  /** Whether every task of every variant asked for is resolvable, and no name had to be left out. */
  readonly isComplete: boolean;
}

/** Coverage of all variants, or of the one named. */
export function countCoverage(catalog: Catalog, onDisk: OnDisk, only?: string): Coverage {
  const chosen = [...catalog.variants.values()].filter(({ name }) => only === undefined || name === only);
  const variants = chosen.map((variant) => countVariant(variant, onDisk));
  let bytes = 0;
  for (const { sizeBytes } of catalog.blobs.values()) bytes += sizeBytes;
  return {
    repository: catalog.repository,
    commit: catalog.commit,
    variants,
    blobs: catalog.blobs.size,
    bytes,
    directories: catalog.directories,
    problems: catalog.problems,
    problemCount: catalog.problemCount,
    isComplete:
      variants.length > 0 &&
      variants.every(({ unresolvable }) => unresolvable.length === 0) &&
      (only !== undefined || catalog.problemCount === 0),
  };
}

function countVariant(variant: Variant, onDisk: OnDisk): VariantCoverage {
  const blobs = new Map([...variant.tasks.values()].map((blob) => [blob.sha256, blob.sizeBytes]));
  let bytes = 0;
  let readyBlobs = 0;
  let readyBytes = 0;
  let quarantinedBlobs = 0;
  for (const [sha256, sizeBytes] of blobs) {
    bytes += sizeBytes;
    const { isReady, isQuarantined } = onDisk(sha256);
    if (isReady) {
      readyBlobs += 1;
      readyBytes += sizeBytes;
    } else if (isQuarantined) quarantinedBlobs += 1;
  }
  return {
    variant: variant.name,
    tasks: variant.tasks.size + variant.unresolvable.size,
    resolvable: variant.tasks.size,
    unresolvable: [...variant.unresolvable].map(([task, reason]) => ({ task, reason })),
    blobs: blobs.size,
    bytes,
    readyBlobs,
    readyBytes,
    quarantinedBlobs,
  };
}
