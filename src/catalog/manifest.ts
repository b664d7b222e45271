/**
 * Repositories with a `manifest.jsonl`: a JSON object a line, one for each image, with at least
 *
 *   {"sif_sha256": 64 hex digits, "sif_bytes": size, "hf_path": path in the repository}
 *
 * and where the image lies elsewhere `hf_repo` ("owner/name" of a dataset repository) and `hf_revision` (branch, tag or commit,
 * "main" where it is left out). All other fields are for names alone. What a row says of an image must agree with the listing of the repository
 * that has it, so that what is missing is known before anybody opens it.
 */

import * as v from 'valibot';
import { messageOf, TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { CatalogSources } from './catalog.js';
import type { CatalogForm, FormContext, WantedFiles } from './catalog-form.js';
import type { Listing } from './listing.js';
import { nameOfRow, type Row } from './name-template.js';
import { pathProblem, printable, REPOSITORY_NAME, REVISION_NAME } from './names.js';
import { VariantBuilder } from './variant-builder.js';

const MANIFEST_PATH = 'manifest.jsonl';
/** The published pools have some ten thousand rows of some 500 bytes. */
const MAX_ROWS = 1_000_000;
const MAX_ROW_CHARACTERS = 65_536;
/** Repositories, each at one revision, that one manifest may name besides its own. */
const MAX_OTHER_REPOSITORIES = 16;
const DEFAULT_REVISION = 'main';

const imageShape = v.object({
  sif_sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  sif_bytes: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
  hf_path: v.string(),
  hf_repo: v.nullish(v.pipe(v.string(), v.regex(REPOSITORY_NAME))),
  hf_revision: v.nullish(v.pipe(v.string(), v.regex(REVISION_NAME))),
});
type Image = v.InferOutput<typeof imageShape>;

/** Words for a field that is not as it must be. */
const EXPECTED: Readonly<Record<string, string>> = {
  sif_sha256: '64 lower-case hex digits',
  sif_bytes: 'a positive integer',
  hf_path: 'a path',
  hf_repo: 'owner/name of a repository',
  hf_revision: 'a branch, a tag or a commit',
};

export const manifestForm: CatalogForm = {
  kind: 'manifest',
  indexPath: MANIFEST_PATH,
  filesElsewhere(index, repository) {
    const wanted = new Map<string, WantedFiles & { readonly paths: Set<string> }>();
    for (const { row } of rowsOf(index, repository)) {
      const image = typeof row === 'string' ? row : imageOf(row);
      if (typeof image === 'string') continue;
      const place = placeOf(image, repository);
      if (place === undefined) continue;
      const key = keyOf(place);
      const known = wanted.get(key) ?? { ...place, paths: new Set() };
      known.paths.add(image.hf_path);
      wanted.set(key, known);
      if (wanted.size > MAX_OTHER_REPOSITORIES) {
        const message = `${MANIFEST_PATH} of ${repository} names more than ${MAX_OTHER_REPOSITORIES} other repositories or revisions`;
        throw new TmaxError('EBADMSG', message, { source: 'catalog', level: 'error' });
      }
    }
    return [...wanted.values()];
  },
  variants(context) {
    const { sources, naming, leaveOut } = context;
    const builder = new VariantBuilder(leaveOut);
    const listings = new Map(context.others.map((other) => [keyOf(other), other]));
    for (const { row, number } of rowsOf(sources.index, sources.repository)) {
      const name = typeof row === 'string' ? row : nameOfRow(row, naming);
      if (typeof name === 'string' || typeof row === 'string') {
        leaveOut(`line ${number} of ${MANIFEST_PATH}`, String(name));
        continue;
      }
      const image = imageOf(row);
      builder.add(name.variant, name.task, typeof image === 'string' ? image : resolve(image, context, listings));
    }
    return builder.variants;
  },
};

interface NumberedRow {
  /** From 1. */
  readonly number: number;
  /** The row, or in words why it is none. */
  readonly row: Row | string;
}

/** Errors: EBADMSG more rows than any manifest has. */
function* rowsOf(index: string, repository: string): Generator<NumberedRow, void, undefined> {
  let number = 0;
  for (let start = 0; start < index.length; ) {
    const end = index.indexOf('\n', start);
    const line = index.slice(start, end < 0 ? index.length : end);
    start = end < 0 ? index.length : end + 1;
    number += 1;
    if (number > MAX_ROWS) {
      const message = `${MANIFEST_PATH} of ${repository} has more than ${MAX_ROWS} lines`;
      throw new TmaxError('EBADMSG', message, { source: 'catalog', level: 'error' });
    }
    if (line.trim() !== '') yield { number, row: parseRow(line) };
  }
}

function parseRow(line: string): Row | string {
  if (line.length > MAX_ROW_CHARACTERS) return `it is longer than ${MAX_ROW_CHARACTERS} characters`;
  let json: unknown;
  try {
    json = JSON.parse(line);
  } catch (cause) {
    return `it is not JSON: ${printable(messageOf(cause))}`;
  }
  return isRow(json) ? json : 'it is no JSON object';
}

function isRow(value: unknown): value is Row {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function imageOf(row: Row): Image | string {
  const parsed = v.safeParse(imageShape, row);
  if (!parsed.success) {
    const field = v.getDotPath(parsed.issues[0]) ?? '';
    return `the manifest gives no usable ${field} (${EXPECTED[field]})`;
  }
  const problem = pathProblem(parsed.output.hf_path);
  return problem === undefined ? parsed.output : `${printable(parsed.output.hf_path)}: ${problem}`;
}

type Place = Pick<WantedFiles, 'repository' | 'revision'>;

/** Undefined in the manifest's own repository, which is there at its own commit. */
function placeOf({ hf_repo, hf_revision }: Image, own: string): Place | undefined {
  const repository = hf_repo ?? own;
  if (repository === own && (hf_revision ?? undefined) === undefined) return undefined;
  return { repository, revision: hf_revision ?? DEFAULT_REVISION };
}

function keyOf({ repository, revision }: Place): string {
  return `${repository}@${revision}`;
}

/** Where the image is, or in words why it can't be had. */
function resolve(
  image: Image,
  { sources, own }: FormContext,
  others: ReadonlyMap<string, Listing & CatalogSources['others'][number]>,
): BlobAddress | string {
  const { hf_path: path, sif_sha256: sha256, sif_bytes: sizeBytes } = image;
  const place = placeOf(image, sources.repository);
  const listing = place === undefined ? own : others.get(keyOf(place));
  const where = place === undefined ? 'the repository' : keyOf(place);
  const listed = listing?.files.get(path);
  if (listed === undefined) {
    const refused = listing?.refused.get(path);
    return refused === undefined ? `${printable(path)} is not in ${where}` : `${printable(path)}: ${refused}`;
  }
  if (listed.sha256 !== sha256) return `${printable(path)} has another sha256 in the listing of ${where}`;
  if (listed.sizeBytes !== sizeBytes) {
    return `${printable(path)} has ${listed.sizeBytes} bytes in the listing of ${where}, and ${sizeBytes} in the manifest`;
  }
  return listed;
}
