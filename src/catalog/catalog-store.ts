/**
 * Catalogs on the local disk, so that a second start needs no network.
 *
 * Layout below the given folder: `<owner>--<name>/<commit>.json` holds what a catalog is made of, `revisions.json` what each
 * revision last resolved to. Files are replaced whole (write, fsync, rename, fsync of the folder). What is read back is
 * parsed as strictly as what came from the network.
 */

import { randomBytes } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import * as v from 'valibot';
import { systemErrorCode } from '../errors.js';
import type { CatalogSources, ListedFile } from './catalog.js';

/** Catalogs kept per repository; the oldest go first. */
const MAX_CATALOGS_PER_REPOSITORY = 8;
/** Revisions remembered per repository. */
const MAX_REVISIONS = 64;

const commitShape = v.pipe(v.string(), v.regex(/^[0-9a-f]{40}$/));
const storedShape = v.object({
  repository: v.string(),
  commit: commitShape,
  date: v.pipe(v.string(), v.isoTimestamp()),
  taskMap: v.string(),
  // Tens of thousands: looked at one by one, but not copied.
  listing: v.custom<ListedFile[]>((value) => Array.isArray(value) && value.every(isListedFile)),
});
const revisionsShape = v.record(v.string(), commitShape);

export class CatalogStore {
  readonly #folder: string;

  /** `folder` is created on the first save. */
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** What was saved for that commit, or undefined where nothing usable is there. Errors: those of reading the disk. */
  async load(repository: string, commit: string): Promise<CatalogSources | undefined> {
    const stored = parseJson(storedShape, await readIfThere(this.#catalogPath(repository, commit)));
    if (stored === undefined || stored.repository !== repository || stored.commit !== commit) return undefined;
    return { ...stored, date: new Date(stored.date) };
  }

  async save(sources: CatalogSources): Promise<void> {
    const folder = this.#repositoryFolder(sources.repository);
    await mkdir(folder, { recursive: true, mode: 0o755 });
    await replaceFile(this.#catalogPath(sources.repository, sources.commit), JSON.stringify(sources));
    await removeOldest(folder, MAX_CATALOGS_PER_REPOSITORY);
  }

  /** The commit that `revision` last resolved to, or undefined. */
  async lastCommit(repository: string, revision: string): Promise<string | undefined> {
    return (await this.#revisions(repository)).get(revision);
  }

  async rememberCommit(repository: string, revision: string, commit: string): Promise<void> {
    const revisions = await this.#revisions(repository);
    if (revisions.get(revision) === commit) return;
    revisions.delete(revision);
    revisions.set(revision, commit);
    const newest = [...revisions].slice(-MAX_REVISIONS);
    await mkdir(this.#repositoryFolder(repository), { recursive: true, mode: 0o755 });
    await replaceFile(this.#revisionsPath(repository), JSON.stringify(Object.fromEntries(newest)));
  }

  async #revisions(repository: string): Promise<Map<string, string>> {
    const text = await readIfThere(this.#revisionsPath(repository));
    return new Map(Object.entries(parseJson(revisionsShape, text) ?? {}));
  }

  #repositoryFolder(repository: string): string {
    return join(this.#folder, repository.replaceAll('/', '--'));
  }

  #catalogPath(repository: string, commit: string): string {
    return join(this.#repositoryFolder(repository), `${commit}.json`);
  }

  #revisionsPath(repository: string): string {
    return join(this.#repositoryFolder(repository), 'revisions.json');
  }
}

function isListedFile(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || !('path' in value) || !('sizeBytes' in value)) return false;
  const isNamed = typeof value.path === 'string' && typeof value.sizeBytes === 'number';
  return isNamed && (!('sha256' in value) || typeof value.sha256 === 'string');
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return undefined;
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

async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    const file = await open(temporary, 'wx', 0o644);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  const folder = await open(join(path, '..'), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

async function removeOldest(folder: string, keep: number): Promise<void> {
  const names = (await readdir(folder)).filter((name) => /^[0-9a-f]{40}\.json$/.test(name));
  const aged = await Promise.all(
    names.map(async (name) => ({ path: join(folder, name), savedMs: (await stat(join(folder, name))).mtimeMs })),
  );
  aged.sort((a, b) => b.savedMs - a.savedMs);
  await Promise.all(aged.slice(keep).map(({ path }) => rm(path, { force: true })));
}
