/** Each tier on clusters that are so simple that what must come out can be worked out by hand. */

import test, { type ExecutionContext } from 'ava';
import { Cluster, type Demand, type Outcome, type Site, type Tier } from '../../bench/simulation/cluster.js';
import {
  eachNode,
  eachSandbox,
  filledServer,
  PIECE_BYTES,
  peersBehindCache,
  peerToPeer,
  readThroughCache,
  registry,
  sharedDirectory,
  UPLOADS_PER_HOLDER,
} from '../../bench/simulation/tiers.js';

const SIZE = 1000;
const UPLINK = 10;
const LINK = 100;
const SANDBOXES = 4;
/** Of one image over the uplink alone, and over a link of the site alone. */
const DOWN = SIZE / UPLINK;
const HAND = SIZE / LINK;

const SITE: Site = {
  uplinkBytesPerSecond: UPLINK,
  linkBytesPerSecond: LINK,
  imageBytesPerSecond: Number.POSITIVE_INFINITY,
  resolver: { requests: 1_000_000, windowSeconds: 300 },
};

/** So many nodes, each of which opens the images 0 to `images`. */
function start(
  tier: Tier,
  nodes: number,
  { images = 1, site = {} }: { images?: number; site?: Partial<Site> } = {},
): Outcome {
  const list = Array.from({ length: images }, (_, index) => index);
  const demand: Demand = {
    imageSizes: list.map(() => SIZE),
    nodes: Array.from({ length: nodes }, () => list),
    sandboxesPerImage: SANDBOXES,
    fetchesPerNode: 8,
  };
  return new Cluster({ ...SITE, ...site }, demand).run(tier);
}

/** Requests, images that came from the Hub, first, all. */
function comesTo(t: ExecutionContext, outcome: Outcome, expected: readonly [number, number, number, number]): void {
  const [requests, fetched, first, all] = expected;
  t.is(outcome.hubRequests, requests);
  t.is(outcome.hubBytes, fetched * SIZE);
  t.true(Math.abs(outcome.firstSandboxSeconds - first) < 1e-6, `first: ${outcome.firstSandboxSeconds}`);
  t.true(Math.abs(outcome.allSandboxesSeconds - all) < 1e-6, `all: ${outcome.allSandboxesSeconds}`);
}

test('one node, one image: its size over the uplink, and where a server lies between, over its link after that', (t) => {
  comesTo(t, start(eachSandbox, 1), [SANDBOXES, SANDBOXES, SANDBOXES * DOWN, SANDBOXES * DOWN]);
  comesTo(t, start(eachNode, 1), [1, 1, DOWN, DOWN]);
  comesTo(t, start(readThroughCache, 1), [1, 1, DOWN + HAND, DOWN + HAND]);
  comesTo(t, start(registry, 1), [1, 1, DOWN, DOWN]);
  comesTo(t, start(sharedDirectory, 1), [1, 1, DOWN, DOWN]);
  comesTo(t, start(peerToPeer, 1), [1, 1, DOWN, DOWN]);
  comesTo(t, start(peersBehindCache, 1), [1, 1, DOWN + HAND, DOWN + HAND]);
  comesTo(t, start(filledServer, 1), [0, 0, HAND, HAND]);
});

test('an image for n nodes at once: n times over the uplink, or once and then n times out of one server', (t) => {
  const nodes = 5;
  comesTo(t, start(eachNode, nodes), [nodes, nodes, nodes * DOWN, nodes * DOWN]);
  comesTo(t, start(filledServer, nodes), [0, 0, nodes * HAND, nodes * HAND]);
  comesTo(t, start(readThroughCache, nodes), [1, 1, DOWN + nodes * HAND, DOWN + nodes * HAND]);
  // The first node has it before it writes it, and does not read it again.
  comesTo(t, start(sharedDirectory, nodes), [1, 1, DOWN, DOWN + HAND + (nodes - 1) * HAND]);
  // All find it missing in the same moment.
  comesTo(t, start(registry, nodes), [nodes, nodes, nodes * DOWN, nodes * DOWN]);
});

test('peers multiply: each round takes as long as all uploads of a holder, and makes that many holders more of each', (t) => {
  const round = UPLOADS_PER_HOLDER * HAND;
  for (const rounds of [1, 2, 3]) {
    const nodes = (UPLOADS_PER_HOLDER + 1) ** rounds;
    comesTo(t, start(peerToPeer, nodes), [1, 1, DOWN, DOWN + rounds * round]);
    comesTo(t, start(peersBehindCache, nodes), [1, 1, DOWN + HAND, DOWN + HAND + rounds * round]);
  }
});

test('peers ask the Hub for each piece of an image, a cache before them but once', (t) => {
  const demand: Demand = {
    imageSizes: [PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES],
    nodes: [
      [0, 1, 2],
      [0, 1, 2],
    ],
    sandboxesPerImage: SANDBOXES,
    fetchesPerNode: 8,
  };
  t.is(new Cluster(SITE, demand).run(peerToPeer).hubRequests, 1 + 2 + 3);
  t.is(new Cluster(SITE, demand).run(peersBehindCache).hubRequests, 3);
});

test('who comes after an image was published finds it in the registry', (t) => {
  const demand: Demand = { imageSizes: [SIZE, 1], nodes: [[0], [1, 0]], sandboxesPerImage: 1, fetchesPerNode: 1 };
  // Too early for the second node: the first has it only after about 100 s.
  t.is(new Cluster(SITE, demand).run(registry).hubRequests, 3);
  const late: Demand = { ...demand, imageSizes: [1, SIZE], nodes: [[0], [1, 0]] };
  t.is(new Cluster(SITE, late).run(registry).hubRequests, 2);
});

test('the limit of requests is waited for: the n-th window for what is n windows over it', (t) => {
  const site = { resolver: { requests: 2, windowSeconds: 300 } };
  // Two at a time: 2 * DOWN = 200 s of each window.
  comesTo(t, start(eachNode, 6, { site }), [6, 6, 2 * DOWN, 600 + 2 * DOWN]);
  comesTo(t, start(readThroughCache, 6, { site }), [1, 1, DOWN + 6 * HAND, DOWN + 6 * HAND]);
});

test('a node fetches so many images at a time, and no image is faster than the daemon', (t) => {
  // Of sixteen, eight share the uplink each time.
  comesTo(t, start(eachNode, 1, { images: 16 }), [16, 16, 8 * DOWN, 16 * DOWN]);
  const site = { uplinkBytesPerSecond: 1_000_000, linkBytesPerSecond: 1_000_000, imageBytesPerSecond: 50 };
  comesTo(t, start(eachNode, 1, { images: 16, site }), [16, 16, SIZE / 50, (2 * SIZE) / 50]);
});
