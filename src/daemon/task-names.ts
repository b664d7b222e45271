/** What blobs are called in the tree, for people: they know tasks, not paths and digests. And how people name tasks. */

import type { Catalog } from '../catalog/catalog.js';

/** For each of the wanted blobs its tasks, as "variant/task"; none for one that only the listing names. */
export function taskNames(
  catalog: Pick<Catalog, 'variants'>,
  wanted: ReadonlySet<string>,
): (sha256: string) => readonly string[] {
  const names = new Map<string, string[]>();
  if (wanted.size > 0) {
    for (const { name, tasks } of catalog.variants.values()) {
      for (const [task, { sha256 }] of tasks) {
        if (!wanted.has(sha256)) continue;
        const known = names.get(sha256);
        if (known === undefined) names.set(sha256, [`${name}/${task}`]);
        else known.push(`${name}/${task}`);
      }
    }
  }
  return (sha256) => names.get(sha256) ?? [];
}

/** A name from a list of tasks: `task`, `variant/task` or a path that ends so, with or without `.sif`. */
export function parseTaskName(name: string): { readonly variant: string | undefined; readonly task: string } {
  const [task = '', variant] = name
    .replace(/\.sif$/, '')
    .split('/')
    .reverse();
  return { variant, task };
}
