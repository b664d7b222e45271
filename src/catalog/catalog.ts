/**
 * The catalog: what exists in a pool at one commit. Built from two untrusted files, the task map and the repository's
 * listing, and immutable from then on: a new commit is a new catalog.
 *
 * A task whose name can't stand in a directory is left out; a task whose image can't be named with size and sha256 is
 * unresolvable. Both are counted with their reasons, neither stops the rest.
 */

import { messageOf, TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import { nameProblem, pathProblem, printable } from './names.js';

export type { BlobAddress } from '../sources/source.js';

/** One file of the listing, its shape checked, its content not. */
export interface ListedFile {
  readonly path: string;
  readonly sizeBytes: number;
  /** From the LFS pointer; plain git files have none. */
  readonly sha256: string | undefined;
}

/** Everything that a catalog is made of, as it came from the repository or from the disk. */
export interface CatalogSources {
  readonly repository: string;
  readonly commit: string;
  readonly date: Date;
  /** Text of `task_to_blob.json`. */
  readonly taskMap: string;
  readonly listing: readonly ListedFile[];
}

export interface Variant {
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
  /** In the order of the task map. */
  readonly variants: ReadonlyMap<string, Variant>;
  /** Every image that a task or the listing names, by sha256. */
  readonly blobs: ReadonlyMap<string, BlobAddress>;
  /** Every listed image (`*.sif`) by its path. */
  readonly images: ReadonlyMap<string, BlobAddress>;
  /** Folders of the repository that hold images, "" for its root. */
  readonly directories: readonly string[];
  /** The first `MAX_PROBLEMS` of what was left out; `problemCount` says how many there were. */
  readonly problems: readonly CatalogProblem[];
  readonly problemCount: number;
}

/** Longest list of left-out names that is kept to be shown; the count goes on. */
const MAX_PROBLEMS = 1000;

const SHA256 = /^[0-9a-f]{64}$/;

/** Builds the catalog. Errors: EBADMSG where the task map is no JSON object of objects or names no variant. */
export function buildCatalog(sources: CatalogSources): Catalog {
  const problems: CatalogProblem[] = [];
  let problemCount = 0;
  const leaveOut = (subject: string, reason: string) => {
    problemCount += 1;
    if (problems.length < MAX_PROBLEMS) problems.push({ subject, reason });
  };

  const listing = readListing(sources, leaveOut);
  const variants = new Map<string, Variant>();
  const blobs = new Map<string, BlobAddress>();
  for (const address of listing.images.values()) blobs.set(address.sha256, address);

  for (const [name, tasks] of parseTaskMap(sources)) {
    const problem = nameProblem(name);
    if (problem !== undefined || !isObject(tasks)) {
      leaveOut(`variant ${printable(name)}`, problem ?? 'it is not an object of tasks');
      continue;
    }
    const variant = readVariant(name, tasks, listing, leaveOut);
    for (const address of variant.tasks.values()) {
      // Most are listed images, which are there already.
      if (!listing.images.has(address.path)) blobs.set(address.sha256, address);
    }
    variants.set(name, variant);
  }
  if (variants.size === 0) {
    throw new TmaxError(
      'EBADMSG',
      `task_to_blob.json of ${sources.repository}@${sources.commit} names no usable variant`,
      {
        source: 'catalog',
        level: 'error',
      },
    );
  }
  const { repository, commit, date } = sources;
  const directories = [...new Set([...listing.images.keys()].map(directoryOf))].sort();
  return { repository, commit, date, variants, blobs, images: listing.images, directories, problems, problemCount };
}

type LeaveOut = (subject: string, reason: string) => void;

interface Listing {
  /** Every usable file with a sha256, by path. */
  readonly files: ReadonlyMap<string, BlobAddress>;
  /** Those of them whose name ends in `.sif`. */
  readonly images: ReadonlyMap<string, BlobAddress>;
  /** Listed, but not usable: path -> why. */
  readonly refused: ReadonlyMap<string, string>;
}

function readListing(sources: CatalogSources, leaveOut: LeaveOut): Listing {
  const files = new Map<string, BlobAddress>();
  const images = new Map<string, BlobAddress>();
  const refused = new Map<string, string>();
  const bySha256 = new Map<string, BlobAddress>();
  for (const file of sources.listing) {
    const isImage = file.path.endsWith('.sif');
    const reason = listedFileProblem(file, bySha256);
    if (reason !== undefined || file.sha256 === undefined) {
      refused.set(file.path, reason ?? 'no sha256');
      // Plain git files (README, the map itself) have no sha256 and are nobody's problem.
      if (isImage) leaveOut(`listing entry ${printable(file.path)}`, reason ?? 'no sha256');
      continue;
    }
    // Two paths with one content are one blob: the first path stands for both.
    const address = bySha256.get(file.sha256) ?? {
      repository: sources.repository,
      commit: sources.commit,
      path: file.path,
      sha256: file.sha256,
      sizeBytes: file.sizeBytes,
    };
    bySha256.set(file.sha256, address);
    files.set(file.path, address);
    if (isImage) images.set(file.path, address);
  }
  return { files, images, refused };
}

function listedFileProblem(file: ListedFile, bySha256: ReadonlyMap<string, BlobAddress>): string | undefined {
  const problem = pathProblem(file.path);
  if (problem !== undefined) return problem;
  if (file.sha256 === undefined) return 'the listing gives no sha256';
  if (!SHA256.test(file.sha256)) return 'the sha256 in the listing is not 64 lower-case hex digits';
  if (!Number.isSafeInteger(file.sizeBytes) || file.sizeBytes <= 0)
    return 'the size in the listing is not a positive integer';
  const twin = bySha256.get(file.sha256);
  if (twin !== undefined && twin.sizeBytes !== file.sizeBytes)
    return `${printable(twin.path)} has the same sha256 and another size`;
  return undefined;
}

function parseTaskMap(sources: CatalogSources): [string, unknown][] {
  const where = `task_to_blob.json of ${sources.repository}@${sources.commit}`;
  let json: unknown;
  try {
    json = JSON.parse(sources.taskMap);
  } catch (cause) {
    throw new TmaxError('EBADMSG', `${where} is not JSON: ${messageOf(cause)}`, {
      cause,
      source: 'catalog',
      level: 'error',
    });
  }
  if (isObject(json)) return Object.entries(json);
  throw new TmaxError('EBADMSG', `${where} is not an object of variants`, { source: 'catalog', level: 'error' });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readVariant(name: string, tasks: Record<string, unknown>, listing: Listing, leaveOut: LeaveOut): Variant {
  const resolved = new Map<string, BlobAddress>();
  const unresolvable = new Map<string, string>();
  for (const [id, path] of Object.entries(tasks)) {
    const problem = nameProblem(taskFileName(id));
    if (problem !== undefined || id === '') {
      leaveOut(`task ${printable(id)} of ${name}`, problem ?? 'it is empty');
      continue;
    }
    const address = typeof path === 'string' ? listing.files.get(path) : undefined;
    if (address !== undefined) {
      resolved.set(id, address);
      continue;
    }
    const reason = unresolvableReason(path, listing);
    unresolvable.set(id, reason);
    leaveOut(`task ${printable(id)} of ${name}`, reason);
  }
  return { name, tasks: resolved, unresolvable };
}

function unresolvableReason(path: unknown, listing: Listing): string {
  if (typeof path !== 'string') return 'the map gives no path';
  const problem = pathProblem(path) ?? listing.refused.get(path);
  return problem === undefined ? `${printable(path)} is not in the repository` : `${printable(path)}: ${problem}`;
}

/** Name of a task's file in the tree. */
export function taskFileName(taskId: string): string {
  return `${taskId}.sif`;
}

/** Folder part of a repository path, "" at its root. */
export function directoryOf(path: string): string {
  const slash = path.lastIndexOf('/');
  return slash < 0 ? '' : path.slice(0, slash);
}

/** Last segment of a repository path. */
export function fileNameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
