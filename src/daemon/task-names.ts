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
export function parseTaskName(name: string): { readonly folder: string | undefined; readonly task: string } {
  const path = name.replace(/\.sif$/, '');
  const slash = path.lastIndexOf('/');
  return { folder: slash < 0 ? undefined : path.slice(0, slash), task: path.slice(slash + 1) };
}

/**
 * Those of the variants that a folder stands for: the one of that name, else all whose path ends so ("solvable" for "one/solvable"), else
 * the one that its own path ends in; all of them where no folder is named.
 */
export function variantsIn(variants: readonly string[], folder: string | undefined): readonly string[] {
  if (folder === undefined) return variants;
  const endsIn = (path: string, end: string) => path === end || path.endsWith(`/${end}`);
  if (variants.includes(folder)) return [folder];
  const ending = variants.filter((name) => endsIn(name, folder));
  if (ending.length > 0) return ending;
  return variants
    .filter((name) => endsIn(folder, name))
    .sort((a, b) => b.length - a.length)
    .slice(0, 1);
}

/** Whether a variant is the one chosen, or lies below what is chosen, as below a pool. */
export function isWithin(variant: string, chosen: string | undefined): boolean {
  return chosen === undefined || variant === chosen || variant.startsWith(`${chosen}/`);
}
