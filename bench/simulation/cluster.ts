/**
 * A cluster whose nodes all start their sandboxes in one moment, with nothing on any disk: what the Hub is asked for, and when
 * the first sandbox and all of them have their image. Transfers and the Hub's limit of requests are modelled, nothing else:
 * no proof, no disk, no latency.
 */

import type { Link } from './fair-shares.js';
import { Network } from './network.js';
import { RequestLimit, type RequestLimitSettings } from './request-limit.js';

export interface Site {
  /** From the Hub to the whole cluster. */
  readonly uplinkBytesPerSecond: number;
  /** Of each node, and of the server of a tier; in each direction. */
  readonly linkBytesPerSecond: number;
  /** Most that one image is fetched with. */
  readonly imageBytesPerSecond: number;
  readonly resolver: RequestLimitSettings;
}

export interface Demand {
  /** Of each image, in bytes. */
  readonly imageSizes: readonly number[];
  /** Which images each node opens, in its order. */
  readonly nodes: readonly (readonly number[])[];
  readonly sandboxesPerImage: number;
  /** Images that a node fetches at one time. */
  readonly fetchesPerNode: number;
}

export interface Outcome {
  readonly hubRequests: number;
  readonly hubBytes: number;
  readonly firstSandboxSeconds: number;
  readonly allSandboxesSeconds: number;
}

/** One end of the site's network, whose two directions don't disturb each other. */
export interface Station {
  readonly receive: Link;
  readonly send: Link;
}

/** How one node gets one image: calls `onEnd` when it has it. */
export type Fetch = (node: Station, image: number, onEnd: () => void) => void;

/** A way of getting images, made anew for each cluster. */
export type Tier = (cluster: Cluster) => Fetch;

export class Cluster {
  readonly server: Station;
  readonly #network: Network;
  readonly #resolver: RequestLimit;
  readonly #uplink: Link;
  readonly #site: Site;
  readonly #demand: Demand;
  #hubBytes = 0;

  constructor(site: Site, demand: Demand) {
    this.#site = site;
    this.#demand = demand;
    this.#network = new Network(site.imageBytesPerSecond);
    this.#resolver = new RequestLimit(site.resolver);
    this.#uplink = { name: 'uplink', bytesPerSecond: site.uplinkBytesPerSecond };
    this.server = this.#station('server');
  }

  get sandboxesPerImage(): number {
    return this.#demand.sandboxesPerImage;
  }

  sizeOf(image: number): number {
    const sizeBytes = this.#demand.imageSizes[image];
    if (sizeBytes === undefined) throw new RangeError(`there is no image ${image}`);
    return sizeBytes;
  }

  /** Asks the Hub for an image, and transfers so many copies of it at once to a place of the site. */
  fetchFromHub(
    image: number,
    to: Station,
    onEnd: () => void,
    { copies = 1, requests = copies }: { readonly copies?: number; readonly requests?: number } = {},
  ): void {
    const sizeBytes = this.sizeOf(image);
    this.#hubBytes += sizeBytes * copies;
    this.#network.at(this.#resolver.grant(this.#network.nowSeconds, requests), () => {
      this.#network.transfer({ sizeBytes, links: [this.#uplink, to.receive], copies }, onEnd);
    });
  }

  /** Transfers an image within the site. */
  hand(image: number, from: Station, to: Station, onEnd: () => void): void {
    this.#network.transfer({ sizeBytes: this.sizeOf(image), links: [from.send, to.receive] }, onEnd);
  }

  /** Starts every sandbox, and lets time go on until all have their image. */
  run(tier: Tier): Outcome {
    const fetch = tier(this);
    const readySeconds: number[] = [];
    for (const [index, images] of this.#demand.nodes.entries()) {
      const node = this.#station(`node ${index}`);
      const waiting = [...images];
      const next = (): void => {
        const image = waiting.shift();
        if (image === undefined) return;
        fetch(node, image, () => {
          readySeconds.push(this.#network.nowSeconds);
          next();
        });
      };
      for (let place = 0; place < this.#demand.fetchesPerNode; place += 1) next();
    }
    this.#network.run();
    return {
      hubRequests: this.#resolver.totalRequests,
      hubBytes: this.#hubBytes,
      firstSandboxSeconds: readySeconds.at(0) ?? Number.NaN,
      allSandboxesSeconds: readySeconds.at(-1) ?? Number.NaN,
    };
  }

  #station(name: string): Station {
    const bytesPerSecond = this.#site.linkBytesPerSecond;
    return { receive: { name: `${name} in`, bytesPerSecond }, send: { name: `${name} out`, bytesPerSecond } };
  }
}
