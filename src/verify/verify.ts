/**
 * The proof that a file is the image it is said to be, cheapest check first: size, sha256, SIF, superblock, metadata,
 * data, apptainer's own opinion. Runs in the calling thread (see `Verifier` for a pool of them) and is bounded in
 * memory whatever the file claims.
 */

import { ImageFile } from './image-file.js';
import { interrupted, Pace } from './pace.js';
import { finding, Refusal } from './refusal.js';
import { proveSif } from './sif.js';
import { proveData } from './squashfs/data.js';
import { openDecompressor } from './squashfs/decompress.js';
import { type Layout, readLayout } from './squashfs/layout.js';
import { proveStructure } from './squashfs/structure.js';
import { proveSuperblock } from './squashfs/superblock.js';
import type { Finding, Verdict, VerifyLevel } from './verdict.js';

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
  if (options.signal?.aborted === true) throw interrupted();
  const image = ImageFile.open(path);
  try {
    return await new Proof(image, options.signal).run(expectation, level);
  } finally {
    image.close();
  }
}

class Proof {
  readonly #image: ImageFile;
  readonly #signal: AbortSignal | undefined;
  readonly #pace: Pace;
  /** The depth that is being proven, for the verdict if it fails. */
  #reached: VerifyLevel = 'header';

  constructor(image: ImageFile, signal: AbortSignal | undefined) {
    this.#image = image;
    this.#signal = signal;
    this.#pace = new Pace(signal);
  }

  async run(expectation: Expectation, level: VerifyLevel): Promise<Verdict> {
    try {
      const mismatch = await this.#identity(expectation);
      if (mismatch !== undefined) return { outcome: 'invalid', level: 'header', finding: mismatch };
      const sif = proveSif(this.#image);
      const superblock = proveSuperblock(this.#image, sif.partition);
      const layout = readLayout(this.#image, superblock);
      const warnings = [...sif.warnings, ...superblock.warnings];
      if (level !== 'header') warnings.push(...(await this.#contents(layout, level)));
      return { outcome: 'valid', level, architecture: sif.architecture, warnings };
    } catch (error) {
      if (error instanceof Refusal) return { outcome: error.outcome, level: this.#reached, finding: error.finding };
      throw error;
    }
  }

  /** Everything behind the superblock; answers with warnings. */
  async #contents(layout: Layout, level: VerifyLevel): Promise<Finding[]> {
    this.#reached = 'structure';
    const { blockSizeBytes, compressor } = layout.superblock;
    const decompress = await openDecompressor(compressor);
    const extents = await proveStructure(this.#image, layout, decompress, this.#pace);
    if (level === 'structure') return [];
    this.#reached = 'deep';
    await proveData(this.#image, extents, decompress, blockSizeBytes, this.#pace);
    if (level === 'deep') return [];
    this.#reached = 'inspect';
    // Loaded here, since it is rarely asked for and takes longer to load than an image to prove.
    const { inspectImage } = await import('./inspect.js');
    return await inspectImage(this.#image.path, { signal: this.#signal });
  }

  async #identity(expectation: Expectation): Promise<Finding | undefined> {
    const { sizeBytes, sha256 } = expectation;
    if (this.#image.sizeBytes !== sizeBytes) {
      return finding({
        code: 'size-mismatch',
        field: 'file size',
        found: `${this.#image.sizeBytes} bytes`,
        expected: `${sizeBytes}`,
      });
    }
    const computed = expectation.computedSha256 ?? (await this.#image.sha256(this.#pace));
    if (computed === sha256) return undefined;
    return finding({ code: 'sha256-mismatch', field: 'sha256', found: computed, expected: sha256 });
  }
}
