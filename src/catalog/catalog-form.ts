/**
 * What a repository has to say of its images, in one interface: each form knows the file that it is read from and which variants and
 * tasks that stands for. Types only.
 */

import type { CatalogKind, CatalogSources, OtherRepository, Variant } from './catalog.js';
import type { LeaveOut, Listing } from './listing.js';
import type { NameTemplate } from './name-template.js';

/** Files of another repository that an index names. */
export interface WantedFiles {
  readonly repository: string;
  /** Branch, tag or commit. */
  readonly revision: string;
  readonly paths: ReadonlySet<string>;
}

export interface FormContext {
  readonly sources: CatalogSources;
  readonly own: Listing;
  readonly others: readonly (OtherRepository & Listing)[];
  readonly naming: NameTemplate | undefined;
  readonly leaveOut: LeaveOut;
}

export interface CatalogForm {
  readonly kind: CatalogKind;
  /** The file at the root of the repository that makes it one of this form; undefined: its images do. */
  readonly indexPath: string | undefined;
  /** What the index names in other repositories. Errors: EBADMSG it names too many, or is no such index. */
  filesElsewhere(index: string, repository: string): readonly WantedFiles[];
  /** Variants by name, in the order of the index. Errors: EBADMSG. */
  variants(context: FormContext): ReadonlyMap<string, Variant>;
}
