/** Repositories with a `task_to_blob.json`: variant -> task -> path of the image, all in the one repository. */

import { messageOf, TmaxError } from '../errors.js';
import type { BlobAddress } from '../sources/source.js';
import type { CatalogSources, Variant } from './catalog.js';
import type { CatalogForm } from './catalog-form.js';
import type { LeaveOut, Listing } from './listing.js';
import { nameProblem, pathProblem, printable, taskFileName } from './names.js';

const TASK_MAP_PATH = 'task_to_blob.json';

export const taskMapForm: CatalogForm = {
  kind: 'task-map',
  indexPath: TASK_MAP_PATH,
  filesElsewhere: () => [],
  variants: ({ sources, own, leaveOut }) => {
    const variants = new Map<string, Variant>();
    for (const [name, tasks] of parseTaskMap(sources)) {
      const problem = nameProblem(name);
      if (problem === undefined && isObject(tasks)) variants.set(name, readVariant(name, tasks, own, leaveOut));
      else leaveOut(`variant ${printable(name)}`, problem ?? 'it is not an object of tasks');
    }
    return variants;
  },
};

function parseTaskMap({ repository, commit, index }: CatalogSources): [string, unknown][] {
  const where = `${TASK_MAP_PATH} of ${repository}@${commit}`;
  let json: unknown;
  try {
    json = JSON.parse(index);
  } catch (cause) {
    throw new TmaxError('EBADMSG', `${where} is not JSON: ${messageOf(cause)}`, {
      cause,
      source: 'catalog',
      level: 'error',
    });
  }
  if (isObject(json)) return Object.entries(json);
  throw new TmaxError('EBADMSG', `${where} is not an object of variants`, { source: 'catalog', level: 'error' });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readVariant(name: string, tasks: Record<string, unknown>, listing: Listing, leaveOut: LeaveOut): Variant {
  const resolved = new Map<string, BlobAddress>();
  const unresolvable = new Map<string, string>();
  for (const [id, path] of Object.entries(tasks)) {
    const problem = nameProblem(taskFileName(id));
    if (problem !== undefined || id === '') {
      leaveOut(`task ${printable(id)} of ${name}`, problem ?? 'it is empty');
      continue;
    }
    const address = typeof path === 'string' ? listing.files.get(path) : undefined;
    if (address !== undefined) {
      resolved.set(id, address);
      continue;
    }
    const reason = unresolvableReason(path, listing);
    unresolvable.set(id, reason);
    leaveOut(`task ${printable(id)} of ${name}`, reason);
  }
  return { name, tasks: resolved, unresolvable };
}

function unresolvableReason(path: unknown, listing: Listing): string {
  if (typeof path !== 'string') return 'the map gives no path';
  const problem = pathProblem(path) ?? listing.refused.get(path);
  return problem === undefined ? `${printable(path)} is not in the repository` : `${printable(path)}: ${problem}`;
}
