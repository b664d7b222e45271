import test from 'ava';
import fc from 'fast-check';
import type { BlobAddress, Catalog } from '../../src/catalog/catalog.js';
import { countTasks, type KnownRefusal, listTasks } from '../../src/daemon/coverage.js';
import { VariantCounter } from '../../src/daemon/variant-counts.js';

const POOL = { repository: 'org/pool', commit: '1'.repeat(40), pools: [], problems: [], problemCount: 0 };
const BLOBS = Array.from('abcdef', (digit, index): BlobAddress => {
  return { ...POOL, path: `x/${digit}.sif`, sha256: digit.repeat(64), sizeBytes: 10 + index };
});

const anyVariant = fc.record({ images: fc.array(fc.constantFrom(...BLOBS)), unresolvable: fc.nat(3) });
const anyCatalog = fc.array(anyVariant, { minLength: 1, maxLength: 3 }).map((all): Pick<Catalog, 'variants'> => {
  const variants = all.map(({ images, unresolvable }, index) => {
    const tasks = new Map(images.map((image, task) => [`t${task}`, image]));
    const lost = new Map(Array.from({ length: unresolvable }, (_, task) => [`lost${task}`, 'why']));
    return [`v${index}`, { name: `v${index}`, tasks, unresolvable: lost }] as const;
  });
  return { variants: new Map(variants) };
});
const anyStanding = fc.record({
  isReady: fc.boolean(),
  isQuarantined: fc.boolean(),
  refusal: fc.option(fc.record({ reason: fc.constant('why'), isFinal: fc.boolean() }), { nil: undefined }),
});
const anyStandings = fc.tuple(...BLOBS.map(({ sha256 }) => anyStanding.map((one) => [sha256, one] as const)));

test('the figures are those of coverage, also after a new commit', (t) => {
  const counter = new VariantCounter();
  fc.assert(
    fc.property(anyCatalog, anyStandings, (catalog, all) => {
      const standings = new Map(all);
      const onDisk = (sha256: string) => standings.get(sha256) ?? { isReady: false, isQuarantined: false };
      const refusals = new Map<string, KnownRefusal>();
      for (const [sha256, { refusal }] of all) if (refusal !== undefined) refusals.set(sha256, refusal);
      const { variants } = countTasks(POOL, listTasks(catalog, onDisk, refusals), [...catalog.variants.keys()]);
      t.deepEqual(
        counter.count(catalog, onDisk, refusals),
        variants.map(({ resolvable: _, refused: _refused, unresolvable, ...counts }) => {
          return { ...counts, unresolvableTasks: unresolvable.length };
        }),
      );
    }),
  );
});
