/** A folder of images and a task map, described as a repository that the fake Hub can serve. */

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import {
  type FakeFile,
  type FakeRepository,
  fileOf,
  repositoryOf,
  type SimpleRepositoryOptions,
} from './fake-hub-repository.js';

/** Variant -> task -> path of the image in the repository: what `task_to_blob.json` holds. */
export type TaskMap = Readonly<Record<string, Readonly<Record<string, string>>>>;

export interface FolderRepositoryOptions extends SimpleRepositoryOptions {
  readonly name: string;
  /** Every `.sif` below it is served from disk, under its path relative to the folder. */
  readonly folder: string;
  readonly taskMap: TaskMap;
}

/** Reads each image once, for its digest. Errors: those of reading the folder. */
export async function repositoryFromFolder({
  name,
  folder,
  taskMap,
  ...options
}: FolderRepositoryOptions): Promise<FakeRepository> {
  const names = (await readdir(folder, { recursive: true })).filter((path) => path.endsWith('.sif')).sort();
  const files: FakeFile[] = [taskMapFile(taskMap)];
  for (const path of names) files.push(await imageFile(join(folder, path), relative(folder, join(folder, path))));
  return repositoryOf(name, files, options);
}

/** `task_to_blob.json`, a small file outside LFS. */
export function taskMapFile(taskMap: TaskMap): FakeFile {
  return fileOf('task_to_blob.json', Buffer.from(JSON.stringify(taskMap)), { lfs: false });
}

async function imageFile(file: string, path: string): Promise<FakeFile> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  const { size } = await stat(file);
  return { path: path.split(sep).join('/'), sizeBytes: size, sha256: hash.digest('hex'), body: { file }, lfs: true };
}
