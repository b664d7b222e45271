/** A cluster: machines with a daemon each, a pool of small valid images, and its Hub in this process, which counts what it is asked. */

import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { FakeHub } from '../../src/demo/fake-hub.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { type FakeFile, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import type { CommandResult } from './command.js';
import { type LogLine, logLines } from './daemon-log.js';
import { eventually } from './mount-client.js';
import { packagePath } from './paths.js';
import { type Machine, Site } from './site.js';
import { smallPool } from './small-pool.js';
import { type Lifetime, temporaryFolder } from './temporary.js';

export const POOL_NAME = 'test-org/test-pool';
const VARIANT = 'v';
/** Programs that open images on a node at one time. */
const OPENERS = 8;

export interface ClusterOptions {
  readonly nodes: number;
  readonly images: number;
  readonly payloadBytes?: number;
}

export class Cluster {
  #nodes: readonly ClusterNode[];

  private constructor(
    readonly site: Site,
    readonly hub: FakeHub,
    readonly files: readonly FakeFile[],
    /** Seen by every machine, for what engines keep. */
    readonly folder: string,
    nodes: readonly ClusterNode[],
  ) {
    this.#nodes = nodes;
  }

  get nodes(): readonly ClusterNode[] {
    return this.#nodes;
  }

  /** Everything but the mounts; all of it ends with the test, or with this process. */
  static async start(lifetime: Lifetime, { nodes, images, payloadBytes = 1000 }: ClusterOptions): Promise<Cluster> {
    const folder = temporaryFolder(lifetime);
    const site = await Site.start(lifetime);
    const { files, tasks } = smallPool(images, payloadBytes);
    const hub = await FakeHub.start({
      repositories: [repositoryOf(POOL_NAME, [taskMapFile(tasks), ...files])],
      addresses: [site.hubAddress, site.cdnAddress],
    });
    lifetime.teardown(() => hub.close());
    const machines = await Promise.all(Array.from({ length: nodes }, () => site.machine()));
    const made = machines.map((machine, index) => {
      const home = join(folder, `node-${index}`);
      mkdirSync(join(home, 'tmax'), { recursive: true });
      return new ClusterNode(machine, home, hub.endpoint);
    });
    return new Cluster(site, hub, files, folder, made);
  }

  /** Mounts on all nodes at once, with these words of `tmaxfs mount`. Throws with the words of one that fails. */
  async mount(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.mount(args, env)));
  }

  /** Unmounts everywhere, and switches off all but so many nodes. */
  async reduce(nodes: number): Promise<void> {
    const [kept, others] = [this.#nodes.slice(0, nodes), this.#nodes.slice(nodes)];
    await Promise.all(others.map(({ machine }) => machine.powerOff()));
    await Promise.all(kept.map((node) => node.unmount()));
    this.#nodes = kept;
  }

  /** Opens and reads every image on every node. Resolves with what was wrong, in words: nothing, if all is well. */
  async open(files: readonly FakeFile[] = this.files): Promise<string[]> {
    const faults = await Promise.all(this.nodes.map((node) => node.open(files, this.files)));
    return faults.flat();
  }

  /** Resolves when a node has some of these images on its disk. */
  async someHave(files: readonly FakeFile[]): Promise<void> {
    const isCached = ({ cacheDirectory }: ClusterNode) =>
      files.some(({ sha256 }) => existsSync(join(cacheDirectory, 'blobs', sha256.slice(0, 2), sha256)));
    await eventually('a node has some of the images', () => this.nodes.some(isCached) || undefined);
  }

  /** How often the Hub was asked for the place of an image, and its storage for the bytes of one, by image. */
  hits(): { readonly resolver: ReadonlyMap<string, number>; readonly storage: ReadonlyMap<string, number> } {
    const count = (server: 'hub' | 'cdn') => {
      const requests = this.hub.requests.filter(({ server: asked, file }) => asked === server && file !== undefined);
      const images = requests.flatMap(({ file }) => (file?.endsWith('.sif') === true ? [file] : []));
      const counts = new Map<string, number>();
      for (const image of images) counts.set(image, (counts.get(image) ?? 0) + 1);
      return counts;
    };
    return { resolver: count('hub'), storage: count('cdn') };
  }
}

/** A machine with a daemon. */
export class ClusterNode {
  readonly mountpoint: string;
  readonly cacheDirectory: string;
  readonly logFile: string;
  readonly #env: Readonly<Record<string, string>>;

  constructor(
    readonly machine: Machine,
    readonly home: string,
    endpoint: string,
  ) {
    this.mountpoint = join(home, 'tmax');
    this.cacheDirectory = join(home, 'cache');
    this.logFile = join(home, 'log');
    this.#env = { HOME: home, XDG_RUNTIME_DIR: home, HF_ENDPOINT: endpoint };
  }

  async mount(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<void> {
    const { exitCode, stderr } = await this.tmaxfs(
      [
        ...['mount', this.mountpoint, '--repo', POOL_NAME, '--cache-dir', this.cacheDirectory],
        ...['--log-file', this.logFile, '--log-level', 'debug', '--reserve-free', '0', '--scrub', 'off', ...args],
      ],
      env,
    );
    if (exitCode !== 0) throw new Error(`tmaxfs mount failed: ${stderr}`);
  }

  async unmount(): Promise<void> {
    const { exitCode, stderr } = await this.tmaxfs(['unmount', this.mountpoint]);
    if (exitCode !== 0) throw new Error(`tmaxfs unmount failed: ${stderr}`);
  }

  tmaxfs(args: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<CommandResult> {
    const words = [process.execPath, packagePath('bin', 'tmaxfs.js'), ...args];
    return this.machine.run(words, { env: { ...this.#env, ...env } });
  }

  /** Lines of the daemon's log that are there by now. */
  log(): LogLine[] {
    return logLines(this.logFile);
  }

  /** What of the daemon's log tells why something failed. */
  #complaints(): string[] {
    const told = this.log().filter((line) => ['warn', 'error'].includes(String(line['level'])) || 'reason' in line);
    return told.map((line) => `${this.mountpoint}: ${JSON.stringify(line)}`);
  }

  /** Digests these files of the pool, several at a time, and says which did not have the bytes that they should, and the daemon's word on it. */
  async open(files: readonly FakeFile[], pool: readonly FakeFile[]): Promise<string[]> {
    const paths = files.map((file) => join(this.mountpoint, VARIANT, `t${pool.indexOf(file)}.sif`));
    const script = `printf '%s\\n' "$@" | xargs -P ${OPENERS} -n 5 sha256sum`;
    const { stdout, stderr } = await this.machine.run(['sh', '-c', script, 'sh', ...paths]);
    const digests = new Map(stdout.split('\n').map((line) => [line.slice(66), line.slice(0, 64)]));
    const wrong = files.flatMap(({ sha256 }, index) => {
      const path = paths[index] ?? '';
      return digests.get(path) === sha256 ? [] : [`${path}: ${digests.get(path)}`];
    });
    const faults = [...wrong, ...stderr.split('\n').filter(Boolean)];
    return faults.length === 0 ? [] : [...faults, ...this.#complaints()];
  }
}
