/**
 * The catalog: what exists in a pool at one commit. Built from untrusted files, the repository's listing and the index that its form
 * reads (`catalog-form.ts`), and immutable from then on: a new commit is a new catalog.
 *
 * A task whose name can't stand in a directory is left out; a task whose image can't be named with size and sha256 is
 * unresolvable. Both are counted with their reasons, neither stops the rest.
 */

import type { BlobAddress } from '../sources/source.js';

export type { BlobAddress } from '../sources/source.js';

/** What a repository has to say of its images: `catalog-form.ts`. */
export const CATALOG_KINDS = ['task-map', 'manifest', 'listing'] as const;
export type CatalogKind = (typeof CATALOG_KINDS)[number];

/** One file of the listing, its shape checked, its content not. */
export interface ListedFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** From the LFS pointer; plain git files have none. */
  readonly sha256: string | undefined;
}

/** What another repository has of the files that an index names. */
export interface OtherRepository {
  readonly repository: string;
  /** As the index names it. */
  readonly revision: string;
  /** 40 hex digits: what it stood for when the commit was first seen. */
  readonly commit: string;
  readonly listing: readonly ListedFile[];
}

/** Everything that a catalog is made of, as it came from the repository or from the disk. */
export interface CatalogSources {
  readonly repository: string;
  readonly commit: string;
  readonly date: Date;
  readonly kind: CatalogKind;
  /** Text of the file that says what tasks there are; "" where the form has none. */
  readonly index: string;
  readonly listing: readonly ListedFile[];
  /** Repositories besides its own that the index names. */
  readonly others: readonly OtherRepository[];
}

export interface Variant {
  /** A path where it lies deeper: "folder/folder". */
  readonly name: string;
  /** Task id -> its image. */
  readonly tasks: ReadonlyMap<string, BlobAddress>;
  /** Task id -> why it has no image. Not in the tree, counted in coverage. */
  readonly unresolvable: ReadonlyMap<string, string>;
}

/** Something of the untrusted files that was left out. */
export interface CatalogProblem {
  readonly subject: string;
  readonly reason: string;
}

export interface Catalog {
  readonly repository: string;
  readonly commit: string;
  readonly date: Date;
  readonly kind: CatalogKind;
  /** In the order of the index. */
  readonly variants: ReadonlyMap<string, Variant>;
  /** Every image that a task or the listing names, by sha256. One address stands for each. */
  readonly blobs: ReadonlyMap<string, BlobAddress>;
  /** Every listed image (`*.sif`) by its path; of two repositories with one path, the first. */
  readonly images: ReadonlyMap<string, BlobAddress>;
  /** Folders of the repositories that hold images, "" for the root. */
  readonly directories: readonly string[];
  /** The first `MAX_PROBLEMS` of what was left out; `problemCount` says how many there were. */
  readonly problems: readonly CatalogProblem[];
  readonly problemCount: number;
}

/** Folder part of a repository path, "" at its root. */
export function directoryOf(path: string): string {
  const slash = path.lastIndexOf('/');
  return slash < 0 ? '' : path.slice(0, slash);
}
