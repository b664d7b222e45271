/**
 * Proving once more what lies on disk: for the daemon before it serves a blob whose proof is missing, and for
 * `tmaxfs verify`. The blob is held under a shared lock meanwhile, and its access time stays what it was.
 */

import { lstat } from 'node:fs/promises';
import { messageOf, systemErrorCode, TmaxError } from '../errors.js';
import { setAccessTime } from '../libc.js';
import type { Finding, Verdict, VerifyLevel } from '../verify/verdict.js';
import type { BlobStore, OpenBlob } from './blob-store.js';
import { type Proof, renewed } from './proof.js';

export interface Prover {
  verify(
    path: string,
    expectation: { sizeBytes: number; sha256: string; computedSha256?: string },
    level: VerifyLevel,
    options: { signal: AbortSignal },
  ): Promise<Verdict>;
}

/** Of an image that is being written; see `verify/following-proof.ts`. */
export interface Following {
  written(bytes: number): void;
  tail(bytes: SharedArrayBuffer): void;
  conclude(): Promise<Verdict>;
  abandon(): void;
}

export interface FollowingProver extends Prover {
  /** Ends with `conclude` or `abandon`, one of which is to be called. */
  follow(
    path: string,
    expectation: { sizeBytes: number; sha256: string },
    level: VerifyLevel,
    options: { signal: AbortSignal },
  ): Following;
}

export interface CheckEnvironment {
  readonly store: BlobStore;
  readonly prover: Prover;
  readonly verifierVersion: number;
  readonly level: VerifyLevel;
}

export type StoredCheck =
  /** Proven just now; `proof` has been written. */
  | { readonly kind: 'sound'; readonly proof: Proof; readonly warnings: readonly Finding[] }
  | { readonly kind: 'damaged'; readonly level: VerifyLevel; readonly finding: Finding }
  /** Not on disk, or just being removed. */
  | { readonly kind: 'absent' };

/**
 * Verifies the blob on disk as a whole, and writes its proof or withdraws it. What the disk does not give any more counts
 * as damaged. Errors: EINTR aborted; EBUSY too many wait; those of writing to the cache.
 */
export async function checkStored(
  { store, prover, verifierVersion, level }: CheckEnvironment,
  expected: { readonly sha256: string; readonly sizeBytes: number },
  signal: AbortSignal,
): Promise<StoredCheck> {
  const { sha256 } = expected;
  const stored = store.openBlob(sha256);
  if (stored === undefined) return { kind: 'absent' };
  let verdict: Verdict;
  try {
    verdict = await withoutTrace(store.layout.blob(sha256), level, () =>
      judge(prover, store.layout.blob(sha256), expected, level, signal),
    );
    if (verdict.outcome === 'valid') {
      const proof = proofOf(stored, expected, verdict, verifierVersion, store.proofs.read(sha256));
      await store.proofs.write(proof);
      return { kind: 'sound', proof, warnings: verdict.warnings };
    }
  } finally {
    // Before the proof is withdrawn: who then wants to replace the blob must find it unlocked.
    store.closeBlob(stored);
  }
  await store.proofs.withdraw(sha256);
  return { kind: 'damaged', level: verdict.level, finding: verdict.finding };
}

async function judge(
  prover: Prover,
  path: string,
  expected: { readonly sha256: string; readonly sizeBytes: number },
  level: VerifyLevel,
  signal: AbortSignal,
): Promise<Verdict> {
  try {
    return await prover.verify(path, expected, level, { signal });
  } catch (error) {
    if (!(error instanceof TmaxError) || error.errno !== 'EIO') throw error;
    return { outcome: 'invalid', level, finding: { code: 'unreadable', message: messageOf(error) } };
  }
}

function proofOf(
  { modifiedSeconds }: OpenBlob,
  { sha256, sizeBytes }: { readonly sha256: string; readonly sizeBytes: number },
  { level, architecture }: Extract<Verdict, { outcome: 'valid' }>,
  verifierVersion: number,
  before: Proof | undefined,
): Proof {
  const now = new Date().toISOString();
  const source = before?.source ?? 'cache';
  const file = { sha256, sizeBytes, modifiedSeconds };
  return renewed(before, { ...file, level, verifierVersion, provenAt: now, checkedAt: now, architecture, source });
}

/** Our own reading leaves no access time (read-only-file.ts); apptainer's does, and it is set back. */
async function withoutTrace<Result>(path: string, level: VerifyLevel, act: () => Promise<Result>): Promise<Result> {
  if (level !== 'inspect') return await act();
  const { atimeMs } = await lstat(path);
  try {
    return await act();
  } finally {
    await setAccessTime(path, atimeMs).catch((error: unknown) => {
      // Another user's, of a shared cache: then this reading counts as a use.
      if (systemErrorCode(error) !== 'EPERM') throw error;
    });
  }
}
