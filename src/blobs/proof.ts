/**
 * The proof kept beside a blob: what was verified, how deep, by which verifier, and of exactly which file (size and
 * modification time, which publishing sets and nothing of ours ever changes). A blob whose proof is missing, shallower
 * than asked for, by an older verifier, or of another file, is verified again before it is served. So removing the proof
 * is how a blob is taken out of service, by any process and at any time.
 */

import { lstatSync } from 'node:fs';
import * as v from 'valibot';
import { readSmallFile } from '../small-file.js';
import { VERIFY_LEVELS, type VerifyLevel } from '../verify/verdict.js';

const proofShape = v.object({
  sha256: v.string(),
  sizeBytes: v.number(),
  modifiedSeconds: v.number(),
  level: v.picklist(VERIFY_LEVELS),
  verifierVersion: v.number(),
  /** When the form was proven, and when the digest was last found to be right. */
  provenAt: v.pipe(v.string(), v.isoTimestamp()),
  checkedAt: v.pipe(v.string(), v.isoTimestamp()),
  /** As SIF knows them: "amd64". */
  architecture: v.string(),
  /** Where the bytes came from, as "hub". */
  source: v.string(),
});

export type Proof = v.InferOutput<typeof proofShape>;

/** The proof at `path`, or undefined where there is none or it can't be read as one. Synchronous: a lease waits on it. */
export function readProof(path: string): Proof | undefined {
  const text = readSmallFile(path);
  if (text === undefined) return undefined;
  try {
    const parsed = v.safeParse(proofShape, JSON.parse(text));
    return parsed.success ? parsed.output : undefined;
  } catch {
    // A power cut may leave an empty or torn file: as good as none, since it only spares work.
    return undefined;
  }
}

/** What changes whenever the proof at `path` is replaced; undefined where there is none. Cheap: every open asks for it. */
export function proofStamp(path: string): string | undefined {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats === undefined ? undefined : `${stats.ino}:${stats.mtimeMs}`;
}

/** Whether `proof` covers this file at this level by a verifier that is not older than `verifierVersion`. */
export function covers(
  proof: Proof,
  file: { sha256: string; sizeBytes: number; modifiedSeconds: number },
  level: VerifyLevel,
  verifierVersion: number,
): boolean {
  return (
    proof.sha256 === file.sha256 &&
    proof.sizeBytes === file.sizeBytes &&
    proof.modifiedSeconds === file.modifiedSeconds &&
    proof.verifierVersion >= verifierVersion &&
    VERIFY_LEVELS.indexOf(proof.level) >= VERIFY_LEVELS.indexOf(level)
  );
}

/**
 * The proof after the whole file was verified once more: a deeper one that still holds is not made shallower, since the
 * digest says that the bytes are those that were proven then.
 */
export function renewed(before: Proof | undefined, now: Proof): Proof {
  const holds = before !== undefined && covers(before, now, now.level, now.verifierVersion);
  return holds ? { ...before, checkedAt: now.checkedAt } : now;
}
