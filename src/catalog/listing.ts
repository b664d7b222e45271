/** The listing of a repository, entry by entry: which files have all that an image needs, and why the others don't. */

import type { BlobAddress } from '../sources/source.js';
import type { ListedFile } from './catalog.js';
import { IMAGE_SUFFIX, pathProblem, printable } from './names.js';

/** Says of something in the untrusted files that it was left out, and why. */
export type LeaveOut = (subject: string, reason: string) => void;

export interface Listing {
  /** Every usable file with a sha256, by path. */
  readonly files: ReadonlyMap<string, BlobAddress>;
  /** Those of them whose name ends in `.sif`. */
  readonly images: ReadonlyMap<string, BlobAddress>;
  /** Listed, but not usable: path -> why. */
  readonly refused: ReadonlyMap<string, string>;
}

const SHA256 = /^[0-9a-f]{64}$/;

/** `bySha256` is added to: two paths with one content are one blob, and the first path stands for both. */
export function readListing(
  { repository, commit, listing }: { repository: string; commit: string; listing: readonly ListedFile[] },
  bySha256: Map<string, BlobAddress>,
  leaveOut: LeaveOut,
): Listing {
  const files = new Map<string, BlobAddress>();
  const images = new Map<string, BlobAddress>();
  const refused = new Map<string, string>();
  for (const file of listing) {
    const isImage = file.path.endsWith(IMAGE_SUFFIX);
    const reason = listedFileProblem(file, bySha256);
    if (reason !== undefined || file.sha256 === undefined) {
      refused.set(file.path, reason ?? 'no sha256');
      // Plain git files (README, the map itself) have no sha256 and are nobody's problem.
      if (isImage) leaveOut(`listing entry ${printable(file.path)}`, reason ?? 'no sha256');
      continue;
    }
    const address = bySha256.get(file.sha256) ?? {
      repository,
      commit,
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
