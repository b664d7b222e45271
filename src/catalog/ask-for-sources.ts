/** What a catalog is made of, asked of the Hub: the listing of the commit, its index, and the listings of the repositories that it names. */

import { counted } from '../counted.js';
import { TmaxError } from '../errors.js';
import type { HubClient, ListedFile as HubFile } from '../sources/hub-client.js';
import { CATALOG_FORMS, type CatalogChoice, chooseForm, formsOf } from './build-catalog.js';
import type { CatalogKind, CatalogSources, ListedFile, OtherRepository } from './catalog.js';
import type { CatalogForm, WantedFiles } from './catalog-form.js';

/** The published map has 3 MB; a hundred times that is not one any more. */
const MAX_INDEX_BYTES = 256 * 1024 * 1024;
/** The published listing has 16,203 files. */
const MAX_LISTED_FILES = 1_000_000;
const COMMIT = /^[0-9a-f]{40}$/;

/** What the catalog asks of the Hub. */
export type CatalogOrigin = Pick<HubClient, 'resolveRevision' | 'listFiles' | 'readSmallFile'>;

export interface AskOptions {
  readonly repository: string;
  readonly commit: string;
  readonly date: Date;
  readonly choice: CatalogChoice;
  /** What the repository was until now: what says less is not taken in its place unless it is named. */
  readonly before: CatalogKind | undefined;
  readonly signal: AbortSignal;
}

/**
 * Errors: those of the origin; ENOENT the repository is no pool of the form that was chosen, or has been one that says more;
 * EBADMSG no end of files, an index that is none, or one that names a repository that can't be had.
 */
export async function askForSources(origin: CatalogOrigin, options: AskOptions): Promise<CatalogSources> {
  const { repository, commit, date, choice, before, signal } = options;
  const listing = await collect(origin.listFiles(repository, commit, { signal }), repository);
  const form = chooseForm(listing, choice);
  if (form === undefined) throw noPool(options, listing);
  if (choice === 'auto' && before !== undefined && saysLess(form, before)) throw saysLessThanBefore(options, before);
  const expected = listing.find(({ path }) => path === form.indexPath);
  const index =
    expected === undefined
      ? ''
      : (
          await origin.readSmallFile(repository, commit, expected.path, { maxBytes: MAX_INDEX_BYTES, signal, expected })
        ).toString('utf8');
  const others: OtherRepository[] = [];
  for (const wanted of form.filesElsewhere(index, repository)) others.push(await askOther(origin, wanted, options));
  return { repository, commit, date, kind: form.kind, index, listing: listing.map(shortened), others };
}

/** Of its files, those that are wanted. */
async function askOther(
  origin: CatalogOrigin,
  { repository, revision, paths }: WantedFiles,
  asked: AskOptions,
): Promise<OtherRepository> {
  const { signal } = asked;
  try {
    const commit = COMMIT.test(revision)
      ? revision
      : (await origin.resolveRevision(repository, revision, signal)).commit;
    const listing = await collect(origin.listFiles(repository, commit, { signal }), repository);
    return { repository, revision, commit, listing: listing.filter(({ path }) => paths.has(path)).map(shortened) };
  } catch (cause) {
    if (!(cause instanceof TmaxError) || !['ENOENT', 'EACCES', 'EINVAL'].includes(cause.errno)) throw cause;
    // The commit is at fault, whatever kind of no that was: one that can be shown is better.
    const message = `${repository}@${revision} can't be had, where ${asked.repository}@${asked.commit} has ${counted(paths.size, 'image')}: ${cause.message}`;
    throw new TmaxError('EBADMSG', message, { cause, source: 'catalog', level: 'error' });
  }
}

function shortened({ path, sizeBytes, sha256 }: HubFile): ListedFile {
  return { path, sizeBytes, sha256 };
}

function saysLess({ kind }: CatalogForm, before: CatalogKind): boolean {
  const kinds = CATALOG_FORMS.map((form) => form.kind);
  return kinds.indexOf(kind) > kinds.indexOf(before);
}

function noPool({ repository, commit, choice }: AskOptions, listing: readonly HubFile[]): TmaxError {
  const missing = formsOf(choice).map(filesOf).join(', no ');
  const other = chooseForm(listing, 'auto');
  const hint = other === undefined ? '' : `; it has ${filesOf(other)}: --catalog ${other.kind} shows it by that`;
  const message = `${repository}@${commit} has no ${missing}: it is no pool of this form${hint}`;
  return new TmaxError('ENOENT', message, { source: 'catalog', level: 'error' });
}

function filesOf({ indexPath }: CatalogForm): string {
  return indexPath ?? '*.sif';
}

function saysLessThanBefore({ repository, commit }: AskOptions, before: CatalogKind): TmaxError {
  const path = CATALOG_FORMS.find(({ kind }) => kind === before)?.indexPath ?? '';
  const message = `${repository}@${commit} has no ${path} any more, by which it was shown until now; --catalog names what is to be shown instead`;
  return new TmaxError('ENOENT', message, { source: 'catalog', level: 'error' });
}

async function collect(files: AsyncIterable<HubFile>, repository: string): Promise<HubFile[]> {
  const listing: HubFile[] = [];
  for await (const file of files) {
    if (listing.length >= MAX_LISTED_FILES) {
      throw new TmaxError('EBADMSG', `the listing of ${repository} has more than ${MAX_LISTED_FILES} files`, {
        source: 'catalog',
        level: 'error',
      });
    }
    listing.push(file);
  }
  return listing;
}
