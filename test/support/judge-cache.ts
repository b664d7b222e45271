/** What must hold of a cache directory at every moment, whoever was killed on it: looked at as a stranger would. */

import { type Dirent, existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { sha256Of } from './sif-writer.js';

export interface PoolImage {
  readonly sha256: string;
  readonly content: Buffer;
}

const TEMPORARY = /\.[0-9a-f]{12}\.tmp$/;
const RESERVATION = /^fetch\.([0-9a-f]{64})\.\d+\.[0-9a-f]{16}$/;
const FOLDERS = ['blobs', 'catalog', 'partial', 'pins', 'proofs', 'quarantine', 'reservations', 'retired'];

export interface CacheJudgement {
  /** What is wrong, in words; empty where nothing is. */
  readonly faults: readonly string[];
  /** Sizes by digest. */
  readonly partials: ReadonlyMap<string, number>;
  /** Files that a killed process was just writing. */
  readonly temporaries: readonly string[];
  /** Proofs without their blobs. */
  readonly orphans: readonly string[];
}

/** Looks at everything below `root`, while nobody changes it. */
export function judgeCache(root: string, images: ReadonlyMap<string, PoolImage>, limitBytes: number): CacheJudgement {
  const faults: string[] = [];
  const temporaries: string[] = [];
  const partials = new Map<string, number>();
  const blobs = new Set<string>();
  let takenBytes = 0;

  const isTemporary = (path: string): boolean => {
    if (TEMPORARY.test(path)) temporaries.push(path);
    return TEMPORARY.test(path);
  };
  for (const entry of entries(root)) {
    const isOurs = entry.isDirectory() ? FOLDERS.includes(entry.name) : entry.name === 'CACHEDIR.TAG';
    if (!isOurs && !isTemporary(pathOf(entry))) faults.push(`${pathOf(entry)} does not belong there`);
  }
  for (const entry of sharded(join(root, 'blobs'), faults)) {
    const image = images.get(entry.name);
    const stats = statSync(pathOf(entry));
    takenBytes += stats.size;
    blobs.add(entry.name);
    if (image === undefined) faults.push(`blobs/ holds ${entry.name}`);
    else if (sha256Of(readFileSync(pathOf(entry))) !== image.sha256) faults.push(`the blob ${entry.name} is damaged`);
    if ((stats.mode & 0o777) !== 0o444) faults.push(`the blob ${entry.name} has the mode ${stats.mode.toString(8)}`);
  }
  for (const entry of entries(join(root, 'partial'))) {
    const image = images.get(entry.name);
    const content = readFileSync(pathOf(entry));
    takenBytes += content.length;
    partials.set(entry.name, content.length);
    if (image === undefined) faults.push(`partial/ holds ${entry.name}`);
    else if (!image.content.subarray(0, content.length).equals(content)) faults.push(`${entry.name} is no prefix`);
  }
  const orphans: string[] = [];
  for (const entry of sharded(join(root, 'proofs'), faults)) {
    if (isTemporary(pathOf(entry))) continue;
    if (!images.has(entry.name)) faults.push(`proofs/ holds ${entry.name}`);
    if (!blobs.has(entry.name)) orphans.push(pathOf(entry));
  }
  for (const folder of ['pins', 'quarantine', 'retired']) {
    for (const { name } of entries(join(root, folder))) faults.push(`${folder}/ holds ${name}`);
  }
  for (const entry of entries(join(root, 'reservations'))) {
    const { name } = entry;
    const sha256 = RESERVATION.exec(name)?.[1];
    if (name !== 'lock' && !isTemporary(pathOf(entry)) && !images.has(sha256 ?? ''))
      faults.push(`reservations/ holds ${name}`);
  }
  if (takenBytes > limitBytes) faults.push(`${takenBytes} bytes are taken, ${limitBytes} are allowed`);
  return { faults, partials, temporaries, orphans };
}

/** Of a process that was killed early, not all folders are there yet. */
function entries(folder: string): Dirent[] {
  return existsSync(folder) ? readdirSync(folder, { withFileTypes: true }) : [];
}

const pathOf = ({ parentPath, name }: Dirent): string => join(parentPath, name);

function sharded(folder: string, faults: string[]): Dirent[] {
  return entries(folder).flatMap((shard) => {
    if (!shard.isDirectory() || !/^[0-9a-f]{2}$/.test(shard.name)) faults.push(`${pathOf(shard)} is no shard`);
    const inside = entries(pathOf(shard));
    for (const { name } of inside) if (!name.startsWith(shard.name)) faults.push(`${name} lies in ${shard.name}/`);
    return inside;
  });
}
