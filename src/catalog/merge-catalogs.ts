/** Several pools as one catalog: a variant is called by its path in the mount, "pool/variant", and a blob counts once. */

import type { BlobAddress, Catalog, CatalogProblem, Variant } from './catalog.js';

/**
 * Of one pool without a name, its own catalog. Of several, `repository`, `commit`, `date` and `kind` are those of the first.
 * `pools`: at least one.
 */
export function mergeCatalogs(pools: readonly { readonly name: string; readonly catalog: Catalog }[]): Catalog {
  const [first] = pools;
  if (first === undefined) throw new RangeError('no pool');
  if (first.name === '') return first.catalog;
  const variants = new Map<string, Variant>();
  const blobs = new Map<string, BlobAddress>();
  const images = new Map<string, BlobAddress>();
  const problems: CatalogProblem[] = [];
  let problemCount = 0;
  for (const { name, catalog } of pools) {
    for (const variant of catalog.variants.values()) {
      const path = `${name}/${variant.name}`;
      variants.set(path, { ...variant, name: path });
    }
    for (const [sha256, address] of catalog.blobs) {
      const known = blobs.get(sha256);
      if (known === undefined) blobs.set(sha256, address);
      else if (known.sizeBytes !== address.sizeBytes) {
        problemCount += 1;
        problems.push({
          subject: `image ${address.path} of ${name}`,
          reason: `${known.repository} has the same sha256 with another size, and that is shown`,
        });
      }
    }
    for (const [path, address] of catalog.images) if (!images.has(path)) images.set(path, address);
    problems.push(...catalog.problems.map(({ subject, reason }) => ({ subject: `${name}: ${subject}`, reason })));
    problemCount += catalog.problemCount;
  }
  const directories = [...new Set(pools.flatMap(({ catalog }) => catalog.directories))].sort();
  return { ...first.catalog, variants, blobs, images, directories, problems, problemCount };
}
