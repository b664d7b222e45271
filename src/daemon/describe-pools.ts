/** What a mount tells its user once it is there: the pools, and what is not as it should be with them. */

import type { Pools } from './pools.js';
import type { Settings } from './settings.js';

/** Any repository's folders are variants: there may be one for each image. */
const MAX_SHOWN_VARIANTS = 20;

/** A line for each pool, and one more for each thing that people should know of. */
export function describePools(
  pools: Pick<Pools, 'shown' | 'reports'>,
  { mountpoint }: Pick<Settings, 'mountpoint'>,
): readonly string[] {
  const catalogs = new Map(pools.shown.map(({ name, catalog }) => [name, catalog]));
  return pools.reports().flatMap(({ name, repository, revision, commit, commitDate, problems, follow }) => {
    const place = name === '' ? mountpoint : `${mountpoint}/${name}`;
    const variants = [...(catalogs.get(name)?.variants.values() ?? [])].map(({ name: variant, tasks }) => {
      return `${variant} ${tasks.size}`;
    });
    const more = variants.splice(MAX_SHOWN_VARIANTS).length;
    if (more > 0) variants.push(`and ${more} more variants`);
    const lines = [`${repository}@${commit.slice(0, 12)} is mounted on ${place}: ${variants.join(', ')}`];
    if (problems > 0) {
      lines.push(
        `warning: names or files left out of it: ${problems}; "tmaxfs coverage ${mountpoint}" tells which and why`,
      );
    }
    const { failure } = follow;
    if (failure !== null) {
      const shown = `shown is the last known commit, of ${commitDate.slice(0, 10)}`;
      const name = revision;
      lines.push(`warning: what ${name} stands for now can't be had, ${shown} (${failure.errno}: ${failure.message})`);
    }
    return lines;
  });
}
