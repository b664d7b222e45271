/** Coverage: for each variant, how many of its tasks can be opened, counted from the catalog and from what lies on disk. */

import type { BlobAddress, Catalog, Variant } from '../catalog/catalog.js';

/** What is known of one blob on this disk. */
export type OnDisk = (sha256: string) => { readonly isReady: boolean; readonly isQuarantined: boolean };

export interface VariantCoverage {
  readonly variant: string;
  readonly tasks: number;
  readonly resolvable: number;
  readonly unresolvable: readonly { readonly task: string; readonly reason: string }[];
  /** Resolvable, and yet not to be opened: the image is broken as it was published. */
  readonly refused: readonly { readonly task: string; readonly reason: string }[];
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
  /** Distinct blobs of the whole repository, or of the one variant that was asked for; so are `bytes` and `directories`. */
  readonly blobs: number;
  readonly bytes: number;
  readonly directories: readonly string[];
  /** What was left out of the catalog altogether. */
  readonly problems: readonly { readonly subject: string; readonly reason: string }[];
  readonly problemCount: number;
  /** Whether every task of every variant asked for can be opened as far as is known, and no name had to be left out. */
  readonly isComplete: boolean;
}

/** Coverage of all variants, or of the one named. `refusals`: why a blob is refused as it was published, by sha256. */
export function countCoverage(
  catalog: Catalog,
  onDisk: OnDisk,
  refusals: ReadonlyMap<string, string>,
  only?: string,
): Coverage {
  const chosen = [...catalog.variants.values()].filter(({ name }) => only === undefined || name === only);
  const variants = chosen.map((variant) => countVariant(variant, onDisk, refusals));
  const blobs = only === undefined ? catalog.blobs : blobsOf(chosen);
  let bytes = 0;
  for (const { sizeBytes } of blobs.values()) bytes += sizeBytes;
  return {
    repository: catalog.repository,
    commit: catalog.commit,
    variants,
    blobs: blobs.size,
    bytes,
    directories: only === undefined ? catalog.directories : directoriesOf(blobs),
    problems: catalog.problems,
    problemCount: catalog.problemCount,
    isComplete:
      variants.length > 0 &&
      variants.every(({ unresolvable, refused }) => unresolvable.length === 0 && refused.length === 0) &&
      (only !== undefined || catalog.problemCount === 0),
  };
}

function blobsOf(variants: readonly Variant[]): ReadonlyMap<string, BlobAddress> {
  const blobs = new Map<string, BlobAddress>();
  for (const { tasks } of variants) for (const blob of tasks.values()) blobs.set(blob.sha256, blob);
  return blobs;
}

function directoriesOf(blobs: ReadonlyMap<string, BlobAddress>): readonly string[] {
  const directories = new Set<string>();
  for (const { path } of blobs.values()) directories.add(path.slice(0, Math.max(0, path.lastIndexOf('/'))));
  return [...directories].sort();
}

function countVariant(variant: Variant, onDisk: OnDisk, refusals: ReadonlyMap<string, string>): VariantCoverage {
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
    refused: [...variant.tasks].flatMap(([task, { sha256 }]) => {
      const reason = refusals.get(sha256);
      return reason === undefined ? [] : [{ task, reason }];
    }),
    blobs: blobs.size,
    bytes,
    readyBlobs,
    readyBytes,
    quarantinedBlobs,
  };
}
