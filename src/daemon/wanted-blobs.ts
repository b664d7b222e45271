/** Which blobs a prefetch means: tasks by name, out of the catalog, each blob once. */

import * as v from 'valibot';
import type { WantedBlob } from '../blobs/prefetch.js';
import type { Catalog, Variant } from '../catalog/catalog.js';
import { TmaxError } from '../errors.js';
import { isWithin, parseTaskName, variantsIn } from './task-names.js';

/** What a client posts. */
export const selectionShape = v.object({
  /** Its tasks alone, or those of all below a folder; without `tasks`, all of them. */
  variant: v.optional(v.string()),
  /** Each `task`, `variant/task` or a path that ends so, with or without `.sif`. */
  tasks: v.optional(v.array(v.string())),
});
export type Selection = v.InferOutput<typeof selectionShape>;

export interface Wanted {
  readonly blobs: ReadonlyMap<string, WantedBlob>;
  /** Names that stand for nothing that could be fetched, with the reason. */
  readonly unknown: readonly { readonly name: string; readonly reason: string }[];
}

/** Errors: EINVAL nothing is chosen, or no such variant. */
export function wantedBlobs(catalog: Catalog, { variant: only, tasks }: Selection): Wanted {
  if (only === undefined && tasks === undefined) {
    throw new TmaxError('EINVAL', 'nothing is chosen: name a variant, or tasks', { source: 'daemon' });
  }
  const variants = [...catalog.variants.values()].filter(({ name }) => isWithin(name, only));
  if (variants.length === 0) {
    const known = [...catalog.variants.keys()].join(', ');
    throw new TmaxError('EINVAL', `the pool has no variant "${only}", only ${known}`, { source: 'daemon' });
  }
  const blobs = new Map<string, WantedBlob>();
  const unknown: { name: string; reason: string }[] = [];
  const want = (variant: Variant, task: string): boolean => {
    const address = variant.tasks.get(task);
    if (address !== undefined && !blobs.has(address.sha256)) {
      blobs.set(address.sha256, { address, label: { variant: variant.name, task } });
    }
    const reason = variant.unresolvable.get(task);
    if (reason !== undefined) unknown.push({ name: `${variant.name}/${task}`, reason });
    return address !== undefined || reason !== undefined;
  };
  if (tasks === undefined) {
    for (const variant of variants) {
      for (const task of [...variant.tasks.keys(), ...variant.unresolvable.keys()]) want(variant, task);
    }
  }
  const names = variants.map(({ name }) => name);
  for (const name of tasks ?? []) {
    const { folder, task } = parseTaskName(name);
    const among = new Set(variantsIn(names, folder));
    const found = variants.map((variant) => among.has(variant.name) && want(variant, task)).some(Boolean);
    if (!found) unknown.push({ name, reason: 'no such task in the pool at this commit' });
  }
  return { blobs, unknown };
}
