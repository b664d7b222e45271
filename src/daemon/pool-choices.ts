/**
 * Which pools are mounted, from the words of the command line: one (`--repo`), whose folders are those of the mount, or several
 * (`--pool name=owner/repo`), each a folder of the mount.
 */

import { CATALOG_CHOICES, type CatalogChoice } from '../catalog/build-catalog.js';
import { type NameTemplate, parseNameTemplate } from '../catalog/name-template.js';
import { REPOSITORY_NAME, REVISION_NAME } from '../catalog/names.js';
import { TmaxError } from '../errors.js';
import { POOL_VIEW } from '../filesystem/tree.js';

export interface PoolWords {
  readonly repo?: string | undefined;
  readonly revision: string;
  /** Each "name=owner/repo" or "name=owner/repo@revision". */
  readonly pool?: readonly string[] | undefined;
  /** Each a kind, or "pool=kind". */
  readonly catalog?: readonly string[] | undefined;
  /** Each a template, or "pool=template". */
  readonly name?: readonly string[] | undefined;
}

export interface PoolChoice {
  /** Folder of the mount; "" for the only pool, which has none. */
  readonly name: string;
  readonly repository: string;
  readonly revision: string;
  readonly catalog: CatalogChoice;
  /** How files are named from the rows of a manifest; undefined: by their ids. */
  readonly naming: NameTemplate | undefined;
}

export const DEFAULT_REPOSITORY = 'wAI-org/tmax-image-pool';
export const DEFAULT_REVISION = 'main';
/** Each has its listing in memory. */
const MAX_POOLS = 16;

const POOL = /^([A-Za-z0-9][A-Za-z0-9._-]{0,63})=([^@]+)(?:@(.+))?$/;
const COMMIT = /^[0-9a-f]{40}$/;

/** At least one, each with its own name. Errors: EINVAL naming the option and what it takes. */
export function readPools(words: PoolWords): readonly PoolChoice[] {
  const { pool = [], repo, revision, catalog = [], name = [] } = words;
  if (pool.length > 0 && repo !== undefined) {
    throw usage('--repo and --pool exclude each other: name every pool by --pool name=owner/repo');
  }
  if (pool.length > MAX_POOLS) throw usage(`--pool is given ${pool.length} times, at most ${MAX_POOLS} are mounted`);
  const places =
    pool.length === 0
      ? [{ name: '', repository: parseRepository(repo ?? DEFAULT_REPOSITORY), revision: parseRevision(revision) }]
      : pool.map((text) => parsePool(text, revision));
  const names = places.map((place) => place.name);
  const twice = names.find((one, index) => names.indexOf(one) !== index);
  if (twice !== undefined) throw usage(`--pool gives two pools the name "${twice}"`);
  const kinds = perPool('--catalog', catalog, names, parseCatalog);
  const templates = perPool('--name', name, names, parseNaming);
  return places.map((place) => {
    const choice = { ...place, catalog: kinds.get(place.name) ?? 'auto', naming: templates.get(place.name) };
    if (choice.naming === undefined || ['auto', 'manifest'].includes(choice.catalog)) return choice;
    throw usage(`--name takes fields from the rows of a manifest, and --catalog says ${choice.catalog}`);
  });
}

/** "owner/repo@revision", as messages have it. */
export function describePool({ repository, revision }: Pick<PoolChoice, 'repository' | 'revision'>): string {
  return `${repository}@${revision}`;
}

/** What is mounted, as the list of mounts has it: "owner/repo", or "name=owner/repo" of each, with "+" between. */
export function deviceOf(pools: readonly PoolChoice[]): string {
  return pools
    .map(({ name, repository, revision }) => {
      if (name === '') return repository;
      return `${name}=${revision === DEFAULT_REVISION ? repository : `${repository}@${revision}`}`;
    })
    .join('+');
}

/** The words of `--pool` in what `deviceOf` has written; none where it is one repository. */
export function poolsOfDevice(device: string): readonly string[] {
  return device.includes('=') ? device.split(/\+(?=[^+=/@]+=)/) : [];
}

/** No branch or tag is among them: what is shown never changes. */
export function areFixed(pools: readonly PoolChoice[]): boolean {
  return pools.every(({ revision }) => COMMIT.test(revision));
}

function parsePool(text: string, fallback: string): Pick<PoolChoice, 'name' | 'repository' | 'revision'> {
  const [, name = '', repository = '', revision = fallback] = POOL.exec(text) ?? [];
  if (!REPOSITORY_NAME.test(repository))
    throw usage(`--pool takes name=owner/repo or name=owner/repo@revision, not "${text}"`);
  if (name === POOL_VIEW) throw usage(`--pool can't be called "${POOL_VIEW}": that is the flat view of all images`);
  return { name, repository, revision: parseRevision(revision) };
}

function parseRepository(text: string): string {
  if (REPOSITORY_NAME.test(text)) return text;
  throw usage(
    `--repo takes owner/name of a dataset repository, not "${text}"${text.includes('@') ? '; its revision belongs into --revision' : ''}`,
  );
}

function parseRevision(text: string): string {
  if (REVISION_NAME.test(text)) return text;
  throw usage(`--revision takes a branch, a tag or a commit, not "${text}"`);
}

function parseCatalog(text: string): CatalogChoice {
  const chosen = CATALOG_CHOICES.find((choice) => choice === text);
  if (chosen !== undefined) return chosen;
  throw usage(`--catalog takes one of ${CATALOG_CHOICES.join(', ')}, not "${text}"`);
}

function parseNaming(text: string): NameTemplate {
  try {
    return parseNameTemplate(text);
  } catch (cause) {
    if (!(cause instanceof TmaxError)) throw cause;
    throw usage(`--name takes a template as "{instance_id}.sif": ${cause.message}`, cause);
  }
}

/** What is given for each pool by name, or for all of them at once. */
function perPool<Value>(
  option: string,
  words: readonly string[],
  names: readonly string[],
  parse: (text: string) => Value,
): ReadonlyMap<string, Value> {
  const forAll = new Map<string, Value>();
  const forOne = new Map<string, Value>();
  for (const word of words) {
    const prefix = word.slice(0, Math.max(0, word.indexOf('=')));
    const isForOne = prefix !== '' && names.includes(prefix);
    const values = isForOne ? forOne : forAll;
    const value = parse(isForOne ? word.slice(prefix.length + 1) : word);
    for (const name of isForOne ? [prefix] : names) {
      if (values.has(name))
        throw usage(`${option} is given twice for ${name === '' ? 'the pool' : `the pool "${name}"`}`);
      values.set(name, value);
    }
  }
  return new Map([...forAll, ...forOne]);
}

function usage(message: string, cause?: unknown): TmaxError {
  return new TmaxError('EINVAL', message, { cause, source: 'settings' });
}
