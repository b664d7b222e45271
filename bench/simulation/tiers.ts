/**
 * The ways of getting images that are compared. Each hands on an image only once it has the whole of it: what those gain that hand
 * on its beginning (slices of nginx, pieces of Dragonfly) is left out.
 */

import type { Cluster, Fetch, Station, Tier } from './cluster.js';

/** To how many others a node hands one image at a time. */
export const UPLOADS_PER_HOLDER = 4;

/** Of Dragonfly, as the daemon asks for them: it asks the Hub where the bytes are for each. */
export const PIECE_BYTES = 32 * 2 ** 20;

/** No daemon, no cache: every sandbox downloads its image. */
export const eachSandbox: Tier = (cluster) => (node, image, onEnd) => {
  cluster.fetchFromHub(image, node, onEnd, { copies: cluster.sandboxesPerImage });
};

/** A daemon on each node, which knows of no other. */
export const eachNode: Tier = (cluster) => (node, image, onEnd) => {
  cluster.fetchFromHub(image, node, onEnd);
};

/** A server that fetches what it is first asked for, once, while whoever else asks waits. */
export const readThroughCache: Tier = (cluster) => {
  const images = new Once();
  return (node, image, onEnd) => {
    const read = () => cluster.hand(image, cluster.server, node, onEnd);
    images.ask(
      image,
      (onDone) =>
        cluster.fetchFromHub(image, cluster.server, () => {
          read();
          onDone();
        }),
      read,
    );
  };
};

/** A node that finds an image missing fetches it from the Hub, and pushes it; nothing keeps others from doing the same meanwhile. */
export const registry: Tier = (cluster) => {
  const stored = new Set<number>();
  return (node, image, onEnd) => {
    if (stored.has(image)) {
      cluster.hand(image, cluster.server, node, onEnd);
      return;
    }
    cluster.fetchFromHub(image, node, () => {
      onEnd();
      if (!stored.has(image)) cluster.hand(image, node, cluster.server, () => stored.add(image));
    });
  };
};

/** As a registry, but that only the first fetches from the Hub (a lease file), while the others wait until it has written it. */
export const sharedDirectory: Tier = (cluster) => {
  const images = new Once();
  return (node, image, onEnd) => {
    images.ask(
      image,
      (onDone) =>
        cluster.fetchFromHub(image, node, () => {
          onEnd();
          cluster.hand(image, node, cluster.server, onDone);
        }),
      () => cluster.hand(image, cluster.server, node, onEnd),
    );
  };
};

/** A server that has every image before anybody asks. */
export const filledServer: Tier = (cluster) => (node, image, onEnd) => {
  cluster.hand(image, cluster.server, node, onEnd);
};

/** The first that asks fetches it from the Hub, by pieces; then every node that has it hands it on. */
export const peerToPeer: Tier = (cluster) =>
  amongPeers(cluster, (node, image, onEnd) => {
    const requests = Math.ceil(cluster.sizeOf(image) / PIECE_BYTES);
    cluster.fetchFromHub(image, node, onEnd, { requests });
  });

/** As that, but that the first has it from a read-through cache. */
export const peersBehindCache: Tier = (cluster) => amongPeers(cluster, readThroughCache(cluster));

/** `fetchFirst`: how the first of all gets an image. */
function amongPeers(cluster: Cluster, fetchFirst: Fetch): Fetch {
  const swarms = new Map<number, Swarm>();
  return (node, image, onEnd) => {
    const swarm = swarms.get(image) ?? { offers: [], waiting: [], isAsked: false };
    swarms.set(image, swarm);
    const match = (): void => {
      while (swarm.offers.length > 0 && swarm.waiting.length > 0) {
        const holder = swarm.offers.shift();
        const asker = swarm.waiting.shift();
        if (holder === undefined || asker === undefined) return;
        cluster.hand(image, holder, asker.node, () => {
          swarm.offers.push(holder);
          asker.onEnd();
        });
      }
    };
    const hold = (): void => {
      for (let place = 0; place < UPLOADS_PER_HOLDER; place += 1) swarm.offers.push(node);
      onEnd();
      match();
    };
    if (swarm.isAsked) {
      swarm.waiting.push({ node, onEnd: hold });
      match();
      return;
    }
    swarm.isAsked = true;
    fetchFirst(node, image, hold);
  };
}

interface Swarm {
  /** Nodes that have it, each as often as it can hand it on at this moment. */
  readonly offers: Station[];
  readonly waiting: { readonly node: Station; readonly onEnd: () => void }[];
  isAsked: boolean;
}

/** What is done once for each image, by the first who asks. */
class Once {
  readonly #waiting = new Map<number, (() => void)[]>();
  readonly #done = new Set<number>();

  /** The first starts it; all others go on once it is done. */
  ask(image: number, start: (onDone: () => void) => void, goOn: () => void): void {
    const waiting = this.#waiting.get(image);
    if (this.#done.has(image)) goOn();
    else if (waiting !== undefined) waiting.push(goOn);
    else {
      this.#waiting.set(image, []);
      start(() => {
        this.#done.add(image);
        for (const other of this.#waiting.get(image) ?? []) other();
        this.#waiting.delete(image);
      });
    }
  }
}
