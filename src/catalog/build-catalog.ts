/** From the untrusted files of a commit to its catalog, by the form that they have. */

import { TmaxError } from '../errors.js';
import {
  type BlobAddress,
  CATALOG_KINDS,
  type Catalog,
  type CatalogKind,
  type CatalogProblem,
  type CatalogSources,
  directoryOf,
} from './catalog.js';
import type { CatalogForm } from './catalog-form.js';
import { type Listing, readListing } from './listing.js';
import { listingForm } from './listing-form.js';
import { manifestForm } from './manifest.js';
import type { NameTemplate } from './name-template.js';
import { IMAGE_SUFFIX } from './names.js';
import { taskMapForm } from './task-map.js';

/** `auto`: what the repository's files at that commit say it is. */
export const CATALOG_CHOICES = ['auto', ...CATALOG_KINDS] as const;
export type CatalogChoice = (typeof CATALOG_CHOICES)[number];

/** Every form that a repository may have, the one that says most first: so they are tried where nobody names one. */
export const CATALOG_FORMS: readonly CatalogForm[] = [taskMapForm, manifestForm, listingForm];

/** Longest list of left-out names that is kept to be shown; the count goes on. */
const MAX_PROBLEMS = 1000;

/** Those that a choice allows. */
export function formsOf(choice: CatalogChoice): readonly CatalogForm[] {
  return CATALOG_FORMS.filter(({ kind }) => choice === 'auto' || choice === kind);
}

/** The form in which a repository with these files is shown; undefined: it is no pool of what was chosen. */
export function chooseForm(
  listing: readonly { readonly path: string }[],
  choice: CatalogChoice,
): CatalogForm | undefined {
  return formsOf(choice).find(({ indexPath }) => {
    return listing.some(({ path }) => (indexPath === undefined ? path.endsWith(IMAGE_SUFFIX) : path === indexPath));
  });
}

function formOf(kind: CatalogKind): CatalogForm {
  const form = CATALOG_FORMS.find((one) => one.kind === kind);
  if (form === undefined)
    throw new TmaxError('EINVAL', `there is no catalog of the kind ${kind}`, { source: 'catalog' });
  return form;
}

/**
 * Builds the catalog. `naming`: how files are named from the fields of their rows, for the forms that have any.
 * Errors: EBADMSG where the index is not of its form, or names no variant.
 */
export function buildCatalog(sources: CatalogSources, naming?: NameTemplate): Catalog {
  const { repository, commit, date, kind } = sources;
  const problems: CatalogProblem[] = [];
  let problemCount = 0;
  const leaveOut = (subject: string, reason: string) => {
    problemCount += 1;
    if (problems.length < MAX_PROBLEMS) problems.push({ subject, reason });
  };
  const bySha256 = new Map<string, BlobAddress>();
  const own = readListing(sources, bySha256, leaveOut);
  const others = sources.others.map((other) => ({ ...other, ...readListing(other, bySha256, leaveOut) }));
  const form = formOf(kind);
  const variants = form.variants({ sources, own, others, naming, leaveOut });
  if (variants.size === 0) {
    const where = form.indexPath === undefined ? 'the listing' : form.indexPath;
    const [first] = problems;
    const why = first === undefined ? '' : `: ${first.subject}: ${first.reason}`;
    throw new TmaxError('EBADMSG', `${where} of ${repository}@${commit} names no usable variant${why}`, {
      source: 'catalog',
      level: 'error',
    });
  }
  const images = others.length === 0 ? own.images : imagesOf([own, ...others]);
  const blobs = new Map<string, BlobAddress>();
  for (const { images: listed } of [own, ...others]) {
    for (const address of listed.values()) blobs.set(address.sha256, address);
  }
  for (const variant of variants.values()) {
    // Most are listed images, which are there already.
    for (const address of variant.tasks.values()) if (!blobs.has(address.sha256)) blobs.set(address.sha256, address);
  }
  const directories = [...new Set([...images.keys()].map(directoryOf))].sort();
  return { repository, commit, date, kind, variants, blobs, images, directories, problems, problemCount };
}

/** By path; of two repositories with one path, the first. */
function imagesOf(listings: readonly Listing[]): ReadonlyMap<string, BlobAddress> {
  const images = new Map<string, BlobAddress>();
  for (const listing of listings) {
    for (const [path, address] of listing.images) if (!images.has(path)) images.set(path, address);
  }
  return images;
}
