/** The words in which verification is asked for and answers. Types only: importable from every room above. */

/**
 * How deep a proof goes, each level holding the ones before it:
 * `header` SIF header, descriptors and squashfs superblock; `structure` every metadata table parsed, every extent in
 * bounds; `deep` every data block decompressed; `inspect` apptainer's own opinion on top.
 */
export const VERIFY_LEVELS = ['header', 'structure', 'deep', 'inspect'] as const;
export type VerifyLevel = (typeof VERIFY_LEVELS)[number];

/** Why an image was refused, precise enough to find the byte. */
export interface Finding {
  /** Machine-readable kind, kebab-case: "size-mismatch", "sha256-mismatch", "sif-magic", "squashfs-superblock", … */
  readonly code: string;
  /** Field as the format's documentation names it, if the finding is about one. */
  readonly field?: string;
  /** Absolute byte offset in the file; for a field inside compressed metadata, that of the block's header. */
  readonly offsetBytes?: number;
  /** The value that stands there, and what should. */
  readonly found?: string;
  readonly expected?: string;
  /** One sentence for a human: what was found and what was expected. */
  readonly message: string;
}

/**
 * An image in a form that apptainer may run and this project does not serve (lzo, ext3, encrypted, …) is `unsupported`.
 * `level` is the one asked for when the image is valid, else the one at which it failed (size and digest: `header`).
 */
export type Verdict =
  | {
      readonly outcome: 'valid';
      readonly level: VerifyLevel;
      readonly architecture: string;
      readonly warnings: readonly Finding[];
    }
  | RefusedVerdict;

export interface RefusedVerdict {
  readonly outcome: 'invalid' | 'unsupported';
  readonly level: VerifyLevel;
  readonly finding: Finding;
}
