/**
 * The proof that a file is the image it is said to be, cheapest check first: size, sha256, SIF, superblock, metadata,
 * data, apptainer's own opinion. Runs in the calling thread, and is bounded in memory whatever the file claims. `Verifier`
 * runs the same steps in threads, the data of one image in several at a time.
 */

import { type GrowingFile, ImageFile } from './image-file.js';
import { interrupted, Pace } from './pace.js';
import { finding, Refusal } from './refusal.js';
import { proveSif } from './sif.js';
import type { Compressor } from './squashfs/compressor-options.js';
import { proveData } from './squashfs/data.js';
import type { DataBlocks } from './squashfs/data-blocks.js';
import { openDecompressor } from './squashfs/decompress.js';
import { readLayout } from './squashfs/layout.js';
import { proveStructure } from './squashfs/structure.js';
import { proveSuperblock } from './squashfs/superblock.js';
import type { Finding, RefusedVerdict, Verdict, VerifyLevel } from './verdict.js';

/** What the listing says about the image. */
export interface Expectation {
  readonly sizeBytes: number;
  /** 64 lower-case hex digits. */
  readonly sha256: string;
  /** Digest computed while the very bytes were written; without it the file is hashed here. */
  readonly computedSha256?: string;
}

export interface VerifyOptions {
  /** Ends the proof within a few tens of milliseconds. */
  readonly signal?: AbortSignal | undefined;
}

/** What is left to decompress of an image whose form is proven. Can be handed to another thread, whole or in parts. */
export interface DataPlan {
  readonly path: string;
  /** Of the file that was proven so far. */
  readonly identity: string;
  readonly compressor: Compressor;
  readonly blocks: DataBlocks;
}

export interface FormProof {
  /** The last word, unless there is data to be proven. */
  readonly verdict: Verdict;
  /** Where the level asks for it and the form is sound. */
  readonly data: DataPlan | undefined;
}

/**
 * Judges the file at `path`. A bad image is a verdict; what is thrown is about this machine: EIO the local disk
 * (unreadable, a symbolic link, not a regular file), EINTR aborted.
 */
export async function verifyImage(
  path: string,
  expectation: Expectation,
  level: VerifyLevel,
  options: VerifyOptions = {},
): Promise<Verdict> {
  const { verdict, data } = await proveForm(path, expectation, level, options);
  if (data === undefined) return verdict;
  return await concludeProof(verdict, path, [await provePlannedData(data, options)], options);
}

/** All that is proven without reading the data: identity, SIF, superblock and, from level `structure`, metadata. */
export async function proveForm(
  path: string,
  expectation: Expectation,
  level: VerifyLevel,
  options: VerifyOptions = {},
): Promise<FormProof> {
  if (options.signal?.aborted === true) throw interrupted();
  const image = ImageFile.open(path);
  try {
    const mismatch = await compareIdentity(image, expectation, new Pace(options.signal));
    if (mismatch !== undefined)
      return { verdict: refusedAt('header', new Refusal('invalid', mismatch)), data: undefined };
    return await judgeForm(image, level, options);
  } finally {
    image.close();
  }
}

/**
 * As `proveForm`, of a file that is still being written and of which only the first and the last bytes are there. Its digest
 * is not known yet, and for the caller to compare. Errors: EIO, EINTR; `NotThereYet` more of the file is needed.
 */
export async function proveGrowingForm(
  path: string,
  growing: GrowingFile,
  level: VerifyLevel,
  options: VerifyOptions = {},
): Promise<FormProof> {
  if (options.signal?.aborted === true) throw interrupted();
  const image = ImageFile.open(path, { growing });
  try {
    return await judgeForm(image, level, options);
  } finally {
    image.close();
  }
}

async function judgeForm(image: ImageFile, level: VerifyLevel, options: VerifyOptions): Promise<FormProof> {
  const pace = new Pace(options.signal);
  let reached: VerifyLevel = 'header';
  try {
    const sif = proveSif(image);
    const superblock = proveSuperblock(image, sif.partition);
    const layout = readLayout(image, superblock);
    const { architecture } = sif;
    const warnings = [...sif.warnings, ...superblock.warnings];
    const verdict: Verdict = { outcome: 'valid', level, architecture, warnings };
    if (level === 'header') return { verdict, data: undefined };
    reached = 'structure';
    const { compressor } = superblock;
    const extents = await proveStructure(image, layout, await openDecompressor(compressor), pace);
    if (level === 'structure') return { verdict, data: undefined };
    const { path, identity } = image;
    return { verdict, data: { path, identity, compressor, blocks: extents.compressed() } };
  } catch (error) {
    return { verdict: refusedAt(reached, error), data: undefined };
  }
}

/** Decompresses what is planned; answers with what is wrong, if anything is. Errors: EIO, EINTR. */
export async function provePlannedData(
  { path, identity, compressor, blocks }: DataPlan,
  options: VerifyOptions = {},
): Promise<RefusedVerdict | undefined> {
  const image = ImageFile.open(path, { identity });
  try {
    await proveData(image, blocks, await openDecompressor(compressor), new Pace(options.signal));
    return undefined;
  } catch (error) {
    return refusedAt('deep', error);
  } finally {
    image.close();
  }
}

/**
 * The verdict on an image of sound form, from what was found in the parts of its data, in their order, and where the level
 * asks for it from what apptainer says. Errors: EINTR; EIO apptainer gave no answer.
 */
export async function concludeProof(
  form: Verdict,
  path: string,
  parts: readonly (RefusedVerdict | undefined)[],
  options: VerifyOptions,
): Promise<Verdict> {
  const refused = parts.find((part) => part !== undefined);
  if (refused !== undefined) return refused;
  if (form.outcome !== 'valid' || form.level !== 'inspect') return form;
  // Loaded here, since it is rarely asked for and takes longer to load than an image to prove.
  const { inspectImage } = await import('./inspect.js');
  try {
    const warnings = await inspectImage(path, { signal: options.signal });
    return { ...form, warnings: [...form.warnings, ...warnings] };
  } catch (error) {
    return refusedAt('inspect', error);
  }
}

function refusedAt(level: VerifyLevel, error: unknown): RefusedVerdict {
  if (error instanceof Refusal) return { outcome: error.outcome, level, finding: error.finding };
  throw error;
}

async function compareIdentity(
  image: ImageFile,
  { sizeBytes, sha256, computedSha256 }: Expectation,
  pace: Pace,
): Promise<Finding | undefined> {
  if (image.sizeBytes !== sizeBytes) {
    return finding({
      code: 'size-mismatch',
      field: 'file size',
      found: `${image.sizeBytes} bytes`,
      expected: `${sizeBytes}`,
    });
  }
  const computed = computedSha256 ?? (await image.sha256(pace));
  if (computed === sha256) return undefined;
  return finding({ code: 'sha256-mismatch', field: 'sha256', found: computed, expected: sha256 });
}
