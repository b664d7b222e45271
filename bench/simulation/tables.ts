/** The pool of the published shape on clusters of several speeds, by each tier. */

import { poolImages, poolTaskMap } from '../../test/support/pool-scale.js';
import { Random } from '../../test/support/random.js';
import { Cluster, type Demand, type Site, type Tier } from './cluster.js';
import {
  eachNode,
  eachSandbox,
  filledServer,
  peersBehindCache,
  peerToPeer,
  readThroughCache,
  registry,
  sharedDirectory,
} from './tiers.js';

export interface TableOptions {
  readonly nodes: number;
  /** That the Hub answers in `WINDOW_SECONDS`. */
  readonly resolverRequests: number;
  readonly seed: number;
}

const TIERS: readonly (readonly [string, Tier])[] = [
  ['no daemon: each sandbox downloads', eachSandbox],
  ['each node for itself', eachNode],
  ['OCI registry, published to on the way', registry],
  ['nginx read-through cache', readThroughCache],
  ['shared directory, published to', sharedDirectory],
  ['peer to peer (Dragonfly)', peerToPeer],
  ['peer to peer, behind the nginx cache', peersBehindCache],
  ['any server, filled beforehand', filledServer],
];

/** Uplink of the site, and link of each node and server, in Gb/s. */
const SPEEDS: readonly (readonly [number, number])[] = [
  [10, 25],
  [100, 100],
  [200, 200],
];
const GIGABIT_BYTES = 1e9 / 8;
const WINDOW_SECONDS = 300;
/** As measured of one fetch with its digest (525 MiB/s). */
const IMAGE_BYTES_PER_SECOND = 525 * 2 ** 20;

const SANDBOXES_PER_NODE = 512;
/** A training step's samples of one prompt. */
const SANDBOXES_PER_IMAGE = 32;
/** The default of --max-fetches. */
const FETCHES_PER_NODE = 8;

/** Both demands: each node with its own prompts, and all with the same. Markdown. */
export function poolTables(options: TableOptions): string {
  return [
    '**Each node has its own prompts:**',
    table(ownPrompts(options), options),
    '**All nodes have the same prompts:**',
    table(samePrompts(options), options),
  ].join('\n\n');
}

function table(demand: Demand, { resolverRequests }: TableOptions): string {
  const head = ['', 'from the Hub, at most', ...SPEEDS.map(([uplink, link]) => `${uplink} / ${link} Gb/s`)];
  const rows = TIERS.map(([name, tier]) => {
    const outcomes = SPEEDS.map(([uplink, link]) => {
      const site: Site = {
        uplinkBytesPerSecond: uplink * GIGABIT_BYTES,
        linkBytesPerSecond: link * GIGABIT_BYTES,
        imageBytesPerSecond: IMAGE_BYTES_PER_SECOND,
        resolver: { requests: resolverRequests, windowSeconds: WINDOW_SECONDS },
      };
      return new Cluster(site, demand).run(tier);
    });
    const most = outcomes.reduce((one, other) => (one.hubRequests > other.hubRequests ? one : other));
    return [
      name,
      `${most.hubRequests.toLocaleString('en')} requests, ${Math.round(most.hubBytes / 1e9).toLocaleString('en')} GB`,
      ...outcomes.map((one) => `${duration(one.firstSandboxSeconds)} / ${duration(one.allSandboxesSeconds)}`),
    ];
  });
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

function ownPrompts({ nodes, seed }: TableOptions): Demand {
  const random = new Random(seed);
  return demandOf(Array.from({ length: nodes }, () => draw(random)));
}

function samePrompts({ nodes, seed }: TableOptions): Demand {
  const images = draw(new Random(seed));
  return demandOf(Array.from({ length: nodes }, () => images));
}

function demandOf(nodes: Demand['nodes']): Demand {
  return {
    imageSizes: SOLVABLE_SIZES,
    nodes,
    sandboxesPerImage: SANDBOXES_PER_IMAGE,
    fetchesPerNode: FETCHES_PER_NODE,
  };
}

/** Distinct images for one node's sandboxes. */
function draw(random: Random): number[] {
  const drawn = new Set<number>();
  while (drawn.size < SANDBOXES_PER_NODE / SANDBOXES_PER_IMAGE) drawn.add(random.below(SOLVABLE_SIZES.length));
  return [...drawn];
}

/** Sizes of the images of the variant `solvable`. */
const SOLVABLE_SIZES = solvableSizes();

function solvableSizes(): number[] {
  const map = poolTaskMap();
  const paths = new Set(Object.values(map['solvable'] ?? {}));
  return poolImages(map)
    .filter(({ path }) => paths.has(path))
    .map(({ sizeBytes }) => sizeBytes);
}

function duration(seconds: number): string {
  if (seconds < 100) return `${seconds.toPrecision(2)} s`;
  const minutes = seconds / 60;
  return minutes < 100 ? `${minutes.toPrecision(2)} min` : `${(minutes / 60).toPrecision(2)} h`;
}
