/** Links and limits of the simulation, against what can be worked out by hand, and against the definition of fairness. */

import test from 'ava';
import fc from 'fast-check';
import { fairShares, type Link, type Route } from '../../bench/simulation/fair-shares.js';
import { Network } from '../../bench/simulation/network.js';
import { RequestLimit } from '../../bench/simulation/request-limit.js';

const link = (name: string, bytesPerSecond: number): Link => ({ name, bytesPerSecond });

/** When each of these transfers ends; each begins at its own time. */
function endsOf(
  transfers: readonly { readonly startSeconds?: number; readonly sizeBytes: number; readonly links: readonly Link[] }[],
  mostBytesPerSecond?: number,
): number[] {
  const network = new Network(mostBytesPerSecond);
  const ends: number[] = transfers.map(() => Number.NaN);
  for (const [index, { startSeconds = 0, ...transfer }] of transfers.entries()) {
    network.at(startSeconds, () => {
      network.transfer(transfer, () => {
        ends[index] = network.nowSeconds;
      });
    });
  }
  network.run();
  return ends;
}

function areNear(actual: readonly number[], expected: readonly number[]): boolean {
  return actual.length === expected.length && actual.every((one, i) => Math.abs(one - (expected[i] ?? 0)) < 1e-6);
}

test('one transfer takes its size over the narrowest of its links, and of what one transfer may take', (t) => {
  const [wide, narrow] = [link('wide', 100), link('narrow', 20)];
  t.true(areNear(endsOf([{ sizeBytes: 1000, links: [wide] }]), [10]));
  t.true(areNear(endsOf([{ sizeBytes: 1000, links: [wide, narrow] }]), [50]));
  t.true(areNear(endsOf([{ sizeBytes: 1000, links: [wide, narrow] }], 10), [100]));
});

test('n equal transfers over one link take n times as long as one, and transfers over different links nothing of each other', (t) => {
  const shared = link('shared', 100);
  const four = Array.from({ length: 4 }, () => ({ sizeBytes: 1000, links: [shared] }));
  t.true(areNear(endsOf(four), [40, 40, 40, 40]));
  const apart = ['a', 'b'].map((name) => ({ sizeBytes: 1000, links: [link(name, 100)] }));
  t.true(areNear(endsOf(apart), [10, 10]));
});

test('a transfer speeds up when another ends, and slows down when one comes', (t) => {
  const shared = link('shared', 100);
  // 50 a second each until 10 s, when 500 are through; the other 500 of the longer at 100 a second.
  t.true(areNear(endsOf([500, 1000].map((sizeBytes) => ({ sizeBytes, links: [shared] }))), [10, 15]));
  // 500 alone by 5 s; then 50 a second each until 15 s.
  const late = [
    { sizeBytes: 1000, links: [shared] },
    { startSeconds: 5, sizeBytes: 500, links: [shared] },
  ];
  t.true(areNear(endsOf(late), [15, 15]));
});

test('copies count as so many transfers', (t) => {
  const shared = link('shared', 100);
  const network = new Network();
  let endSeconds = 0;
  network.transfer({ sizeBytes: 1000, links: [shared], copies: 8 }, () => {
    endSeconds = network.nowSeconds;
  });
  network.run();
  t.is(endSeconds, 80);
});

test('what a narrow link keeps a flow from taking, others take', (t) => {
  const [backbone, slow] = [link('backbone', 100), link('slow', 10)];
  const routes: Route[] = [
    { links: [backbone], flows: 2 },
    { links: [backbone, slow], flows: 1 },
  ];
  t.deepEqual(fairShares(routes, Number.POSITIVE_INFINITY), [45, 10]);
});

test('shares are max-min fair: no link gives more than it has, and what holds each flow back gives nobody more', (t) => {
  const rates = fc.integer({ min: 1, max: 1000 });
  const scene = fc.record({
    links: fc.array(rates, { minLength: 1, maxLength: 6 }),
    routes: fc.array(
      fc.record({
        over: fc.uniqueArray(fc.nat(5), { minLength: 1, maxLength: 3 }),
        flows: fc.integer({ min: 1, max: 9 }),
      }),
      { minLength: 1, maxLength: 8 },
    ),
    most: rates,
  });
  fc.assert(
    fc.property(scene, (drawn) => {
      const links = drawn.links.map((bytesPerSecond, index) => link(String(index), bytesPerSecond));
      const routes = drawn.routes.map(({ over, flows }) => ({
        links: [...new Set(over.map((index) => links[index % links.length]))].filter((one) => one !== undefined),
        flows,
      }));
      const shares = fairShares(routes, drawn.most);
      const given = (one: Link): number =>
        routes.reduce((sum, route, i) => sum + (route.links.includes(one) ? route.flows * (shares[i] ?? 0) : 0), 0);
      const largest = (one: Link): number =>
        Math.max(...routes.map((route, i) => (route.links.includes(one) ? (shares[i] ?? 0) : 0)));
      for (const one of links) t.true(given(one) <= one.bytesPerSecond * (1 + 1e-9));
      for (const [index, route] of routes.entries()) {
        const share = shares[index] ?? Number.NaN;
        const isHeldBack = route.links.some(
          (one) => given(one) >= one.bytesPerSecond * (1 - 1e-9) && share >= largest(one) * (1 - 1e-9),
        );
        t.true(share === drawn.most || isHeldBack, JSON.stringify({ drawn, shares }));
      }
    }),
  );
});

test('of a limit of n requests in a window, request k is answered when window floor(k / n) begins', (t) => {
  const limit = new RequestLimit({ requests: 5, windowSeconds: 300 });
  const answered = Array.from({ length: 12 }, () => limit.grant(7, 1));
  t.deepEqual(answered, [7, 7, 7, 7, 7, 300, 300, 300, 300, 300, 600, 600]);
  t.is(limit.totalRequests, 12);
});

test('requests that are asked for together are answered with the last of them; an idle window leaves nothing over', (t) => {
  const limit = new RequestLimit({ requests: 5, windowSeconds: 300 });
  t.is(limit.grant(0, 12), 600);
  t.is(limit.grant(0, 3), 600);
  t.is(limit.grant(0, 1), 900);
  t.is(limit.grant(1800, 5), 1800);
  t.is(limit.grant(1801, 1), 2100);
});
