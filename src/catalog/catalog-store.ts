/**
 * Catalogs on the local disk, so that a second start needs no network.
 *
 * Layout below the given folder: `<owner>--<name>/<commit>.json` holds what the catalog of a task map is made of, `<commit>.<kind>.json`
 * that of another kind, `revisions.json` what each revision last resolved to. The modification time of a catalog is when it was last used. Files are replaced whole (write, fsync, rename, fsync of the folder). What is read back is
 * parsed as strictly as what came from the network.
 */

import { constants } from 'node:fs';
import { lstat, lutimes, mkdir, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import * as v from 'valibot';
import { systemErrorCode, TmaxError } from '../errors.js';
import { isStrange } from '../small-file.js';
import { removeLeftTemporaries, replaceFile } from '../temporary-file.js';
import { buildCatalog } from './build-catalog.js';
import { CATALOG_KINDS, type Catalog, type CatalogKind, type CatalogSources, type ListedFile } from './catalog.js';

/** Catalogs kept per repository; those used longest ago go first. */
const MAX_CATALOGS_PER_REPOSITORY = 8;
const CATALOG_NAME = /^[0-9a-f]{40}(?:\.(?:manifest|listing))?\.json$/;
const REVISIONS = 'revisions.json';
/** Revisions remembered per repository. */
const MAX_REVISIONS = 64;

const commitShape = v.pipe(v.string(), v.regex(/^[0-9a-f]{40}$/));
// Tens of thousands: looked at one by one, but not copied.
const listingShape = v.custom<ListedFile[]>((value) => Array.isArray(value) && value.every(isListedFile));
const shared = {
  repository: v.string(),
  commit: commitShape,
  date: v.pipe(v.string(), v.isoTimestamp()),
  listing: listingShape,
};
const storedShape = v.union([
  v.object({ ...shared, taskMap: v.string() }),
  v.object({
    ...shared,
    kind: v.picklist(CATALOG_KINDS),
    index: v.string(),
    others: v.array(
      v.object({ repository: v.string(), revision: v.string(), commit: commitShape, listing: listingShape }),
    ),
  }),
]);

/** One of the catalogs on disk. */
export interface StoredCatalog {
  readonly path: string;
  readonly sizeBytes: number;
  readonly usedAtMs: number;
  readonly commit: string;
  /** A revision stands for it, as far as is known here. */
  readonly isCurrent: boolean;
  /** Undefined where the file is of no use. */
  readonly catalog: Catalog | undefined;
}

const revisionsShape = v.record(v.string(), commitShape);

/** How its folders and files are made. */
export interface CatalogMaking {
  /** Also makes what is missing above it. */
  readonly makeFolder: (path: string) => Promise<unknown>;
  /** Whatever the umask; undefined: as that says. */
  readonly fileMode: number | undefined;
}

const FOR_ONE_USER: CatalogMaking = {
  makeFolder: (path) => mkdir(path, { recursive: true, mode: 0o755 }),
  fileMode: undefined,
};

export class CatalogStore {
  readonly #folder: string;
  readonly #making: CatalogMaking;
  /** Revisions are read, changed and written by one at a time: several pools may be of one repository. */
  #remembering: Promise<void> = Promise.resolve();

  /** `folder` is created on the first save. */
  constructor(folder: string, making: CatalogMaking = FOR_ONE_USER) {
    this.#folder = folder;
    this.#making = making;
  }

  /** As `read`, and from then on it is the one that was used last. */
  async load(repository: string, commit: string, kind: CatalogKind): Promise<CatalogSources | undefined> {
    const stored = await this.read(repository, commit, kind);
    if (stored === undefined) return undefined;
    // Only orders which goes first: on a disk that can't be written nothing goes, and
    // what another user has saved is that user's to mark.
    await lutimes(this.#catalogPath(repository, commit, kind), new Date(), new Date()).catch(() => undefined);
    return stored;
  }

  /** What was saved for that commit, or undefined where nothing usable is there. Errors: those of reading the disk. */
  async read(repository: string, commit: string, kind: CatalogKind): Promise<CatalogSources | undefined> {
    const stored = parseSources(await readIfThere(this.#catalogPath(repository, commit, kind)));
    const isIt = stored?.repository === repository && stored.commit === commit && stored.kind === kind;
    return isIt ? stored : undefined;
  }

  /** Every catalog there is, of whatever repository; read one after another, since each is large. */
  async *all(): AsyncGenerator<StoredCatalog, void, undefined> {
    for (const folder of await readFolderIfThere(this.#folder)) {
      const revisions = new Set((await this.#revisionsAt(join(this.#folder, folder, REVISIONS))).values());
      for (const name of await readFolderIfThere(join(this.#folder, folder))) {
        if (!CATALOG_NAME.test(name)) continue;
        const path = join(this.#folder, folder, name);
        const text = await readIfThere(path);
        if (text === undefined) continue;
        const { size, mtimeMs } = await lstat(path);
        const commit = name.slice(0, 40);
        const isCurrent = revisions.has(commit);
        yield { path, sizeBytes: size, usedAtMs: mtimeMs, commit, isCurrent, catalog: usableCatalog(text) };
      }
    }
  }

  async remove({ path }: StoredCatalog): Promise<void> {
    await rm(path, { force: true });
  }

  async save(sources: CatalogSources): Promise<void> {
    const folder = this.#repositoryFolder(sources.repository);
    await this.#making.makeFolder(folder);
    const { repository, commit, date, listing, kind, index } = sources;
    const stored = kind === 'task-map' ? { repository, commit, date, taskMap: index, listing } : sources;
    await replaceFile(this.#catalogPath(repository, commit, kind), JSON.stringify(stored), this.#making.fileMode);
    await removeOldest(folder, MAX_CATALOGS_PER_REPOSITORY);
    await removeLeftTemporaries(folder);
  }

  /** The commit that `revision` last resolved to, or undefined. */
  async lastCommit(repository: string, revision: string): Promise<string | undefined> {
    return (await this.#revisions(repository)).get(revision);
  }

  rememberCommit(repository: string, revision: string, commit: string): Promise<void> {
    const remembered = this.#remembering.then(() => this.#remember(repository, revision, commit));
    this.#remembering = remembered.catch(() => undefined);
    return remembered;
  }

  async #remember(repository: string, revision: string, commit: string): Promise<void> {
    const revisions = await this.#revisions(repository);
    if (revisions.get(revision) === commit) return;
    revisions.delete(revision);
    revisions.set(revision, commit);
    const newest = [...revisions].slice(-MAX_REVISIONS);
    await this.#making.makeFolder(this.#repositoryFolder(repository));
    const text = JSON.stringify(Object.fromEntries(newest));
    await replaceFile(this.#revisionsPath(repository), text, this.#making.fileMode);
  }

  async #revisions(repository: string): Promise<Map<string, string>> {
    return this.#revisionsAt(this.#revisionsPath(repository));
  }

  async #revisionsAt(path: string): Promise<Map<string, string>> {
    const text = await readIfThere(path);
    return new Map(Object.entries(parseJson(revisionsShape, text) ?? {}));
  }

  #repositoryFolder(repository: string): string {
    return join(this.#folder, repository.replaceAll('/', '--'));
  }

  #catalogPath(repository: string, commit: string, kind: CatalogKind): string {
    const name = kind === 'task-map' ? `${commit}.json` : `${commit}.${kind}.json`;
    return join(this.#repositoryFolder(repository), name);
  }

  #revisionsPath(repository: string): string {
    return join(this.#repositoryFolder(repository), REVISIONS);
  }
}

function isListedFile(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || !('path' in value) || !('sizeBytes' in value)) return false;
  const isNamed = typeof value.path === 'string' && typeof value.sizeBytes === 'number';
  return isNamed && (!('sha256' in value) || typeof value.sha256 === 'string');
}

function usableCatalog(text: string): Catalog | undefined {
  const sources = parseSources(text);
  try {
    return sources === undefined ? undefined : buildCatalog(sources);
  } catch (error) {
    if (error instanceof TmaxError && error.errno === 'EBADMSG') return undefined;
    throw error;
  }
}

function parseSources(text: string | undefined): CatalogSources | undefined {
  const stored = parseJson(storedShape, text);
  if (stored === undefined) return undefined;
  const date = new Date(stored.date);
  if (!('taskMap' in stored)) return { ...stored, date };
  const { taskMap: index, ...rest } = stored;
  return { ...rest, date, kind: 'task-map', index, others: [] };
}

async function readFolderIfThere(path: string): Promise<string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(systemErrorCode(error) ?? '')) return [];
    throw error;
  }
}

/** Undefined where there is no file; what others may have put there (a link, a FIFO) is none, and never waited for. */
async function readIfThere(path: string): Promise<string | undefined> {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      return (await file.stat()).isFile() ? await file.readFile('utf8') : undefined;
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isStrange(error)) return undefined;
    throw error;
  }
}

/** The parsed text, or undefined where it is absent or of another shape: a damaged file is as good as none. */
function parseJson<Shape extends v.GenericSchema>(
  shape: Shape,
  text: string | undefined,
): v.InferOutput<Shape> | undefined {
  if (text === undefined) return undefined;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return undefined;
  }
  const parsed = v.safeParse(shape, json);
  return parsed.success ? parsed.output : undefined;
}

async function removeOldest(folder: string, keep: number): Promise<void> {
  const names = (await readdir(folder)).filter((name) => CATALOG_NAME.test(name));
  const aged = await Promise.all(
    names.map(async (name) => ({ path: join(folder, name), savedMs: (await lstat(join(folder, name))).mtimeMs })),
  );
  aged.sort((a, b) => b.savedMs - a.savedMs);
  await Promise.all(aged.slice(keep).map(({ path }) => rm(path, { force: true })));
}
