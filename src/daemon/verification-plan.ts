/** Which blobs on disk `tmaxfs verify` proves, and which tasks each of them answers for. */

import type { StoredBlob } from '../blobs/blob-store.js';
import type { Catalog } from '../catalog/catalog.js';
import { TmaxError } from '../errors.js';
import { isWithin } from './task-names.js';

export interface Selection {
  readonly variant?: string | undefined;
  readonly task?: string | undefined;
}

/** What one line of the report is about. */
export interface Subject {
  readonly variant: string | null;
  readonly task: string | null;
  /** Path in the repository, where the catalog knows the blob. */
  readonly image: string | null;
}

export interface PlannedBlob {
  readonly sha256: string;
  readonly sizeBytes: number;
  /** At least one. */
  readonly subjects: readonly Subject[];
}

export interface VerificationPlan {
  readonly blobs: readonly PlannedBlob[];
  /** Chosen tasks whose blob is not on disk. */
  readonly absentTasks: number;
  /** Every blob of the chosen tasks, on disk or not; undefined: whatever there is. */
  readonly chosen: ReadonlySet<string> | undefined;
}

/**
 * All blobs on disk, or those of the chosen tasks. Without a catalog nothing can be chosen by name.
 * Errors: EINVAL no such variant or task.
 */
export function planVerification(
  catalog: Catalog | undefined,
  stored: readonly StoredBlob[],
  selection: Selection,
): VerificationPlan {
  const isEverything = selection.variant === undefined && selection.task === undefined;
  const subjects = subjectsOf(catalog, selection);
  if (!isEverything && subjects.size === 0) throw unknown(selection);
  const sizes = new Map(stored.map(({ sha256, sizeBytes }) => [sha256, sizeBytes]));
  const blobs: PlannedBlob[] = [];
  let absentTasks = 0;
  for (const [sha256, named] of subjects) {
    const sizeBytes = catalog?.blobs.get(sha256)?.sizeBytes;
    if (sizeBytes !== undefined && sizes.delete(sha256)) blobs.push({ sha256, sizeBytes, subjects: named });
    else absentTasks += named.length;
  }
  if (!isEverything) return { blobs, absentTasks, chosen: new Set(subjects.keys()) };
  for (const [sha256, sizeBytes] of sizes) {
    const listed = catalog?.blobs.get(sha256);
    const subject = { variant: null, task: null, image: listed?.path ?? null };
    blobs.push({ sha256, sizeBytes: listed?.sizeBytes ?? sizeBytes, subjects: [subject] });
  }
  return { blobs, absentTasks, chosen: undefined };
}

/** Chosen tasks by the digest of their blob. */
function subjectsOf(catalog: Catalog | undefined, { variant, task }: Selection): Map<string, Subject[]> {
  const subjects = new Map<string, Subject[]>();
  for (const { name, tasks } of catalog?.variants.values() ?? []) {
    if (!isWithin(name, variant)) continue;
    for (const [id, { sha256, path }] of tasks) {
      if (task !== undefined && id !== task) continue;
      const named = subjects.get(sha256) ?? [];
      named.push({ variant: name, task: id, image: path });
      subjects.set(sha256, named);
    }
  }
  return subjects;
}

function unknown({ variant, task }: Selection): TmaxError {
  const what = [variant === undefined ? '' : `variant "${variant}"`, task === undefined ? '' : `task "${task}"`];
  const words = `the pool has no image for ${what.filter(Boolean).join(', ')}; "tmaxfs coverage" names what it has`;
  return new TmaxError('EINVAL', words, { source: 'cli' });
}
