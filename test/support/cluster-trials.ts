/**
 * What every engine between a cluster and the Hub must stand: eight nodes open the same two hundred images, and the Hub is asked
 * once for each; then the engine lies, fills up, stalls and dies while they open others, and every byte is right all the same.
 */

import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import anyTest from 'ava';
import type { FakeFile } from '../../src/demo/fake-hub-repository.js';
import { Cluster } from './cluster.js';
import { eventually } from './mount-client.js';
import { SharedLifetime } from './shared-lifetime.js';
import { canMakeSite, type Machine } from './site.js';
import { contentOf } from './small-pool.js';

export interface Engine {
  readonly machine: Machine;
  /** Folder of that machine, a disk of its own, on which it keeps images. */
  readonly disk: string;
  /** Words of `tmaxfs mount`. */
  readonly words: readonly string[];
  /** Whether only one node fetches what several want in one moment; else each fetches some before the others ask. */
  readonly hasTurns: boolean;
  /** Lets it have this in the place of an image, from now on. */
  plant(file: FakeFile, bytes: Buffer, lie: Lie): Promise<void>;
}

export type Lie = 'wrong bytes' | 'truncated' | 'gzip';

const NODES = 8;
/** Of them, those that are left for the troubles. */
const TROUBLED_NODES = 4;
const IMAGES = 200;
/** Images more, for each trouble. */
const TROUBLED_IMAGES = 24;
/** Of the test that does the most, on a machine with much else to do. */
const BUSY_TIMEOUT_MS = 300_000;
/** Short, since each is waited for; a node that is merely slow asks again. */
const DEADLINES = ['--connect-timeout', '2', '--first-byte-timeout', '2', '--idle-timeout', '2'];

/** Declares the tests. `start` makes the engine, and can do so where `isInstalled`. */
export function engineTrials(isInstalled: boolean, start: (cluster: Cluster) => Promise<Engine>): void {
  const test = canMakeSite && isInstalled ? anyTest.serial : anyTest.serial.skip;
  const lifetime = new SharedLifetime();
  let shared: { readonly cluster: Cluster; readonly engine: Engine } | undefined;
  const place = () => {
    if (shared === undefined) throw new Error('the cluster is not there');
    return shared;
  };
  const troubled = (number: number): FakeFile[] => {
    const from = IMAGES + number * TROUBLED_IMAGES;
    return place().cluster.files.slice(from, from + TROUBLED_IMAGES);
  };
  anyTest.after.always(() => lifetime.end());

  test('eight nodes open two hundred images: every byte is right, and the Hub is asked once for each', async (t) => {
    t.timeout(BUSY_TIMEOUT_MS);
    const cluster = await Cluster.start(lifetime, { nodes: NODES, images: IMAGES + 4 * TROUBLED_IMAGES });
    const engine = await start(cluster);
    shared = { cluster, engine };
    await cluster.mount(engine.words);
    const files = cluster.files.slice(0, IMAGES);
    if (!engine.hasTurns) t.deepEqual(await divided(cluster, files), []);
    t.deepEqual(await cluster.open(files), []);
    const { resolver, storage } = cluster.hits();
    for (const hits of [resolver, storage]) {
      t.is(hits.size, IMAGES);
      t.deepEqual([...new Set(hits.values())], [1]);
    }
  });

  test('half of the nodes are switched off, and the others start anew with short deadlines', async (t) => {
    const { cluster, engine } = place();
    await cluster.reduce(TROUBLED_NODES);
    await cluster.mount([...engine.words, ...DEADLINES]);
    t.deepEqual(await cluster.open(cluster.files.slice(0, 1)), []);
  });

  test('it lies, by wrong bytes, too few of them, and a compressed body: every byte is right', async (t) => {
    const { cluster, engine } = place();
    const files = troubled(0);
    for (const [index, file] of files.entries()) {
      const content = contentOf(file);
      const wrong = Buffer.from(content);
      wrong.writeUInt8(wrong.readUInt8(9000) ^ 1, 9000);
      if (index % 3 === 0) await engine.plant(file, wrong, 'wrong bytes');
      if (index % 3 === 1) await engine.plant(file, content.subarray(0, 20_000), 'truncated');
      if (index % 3 === 2) await engine.plant(file, gzipSync(content), 'gzip');
    }
    t.deepEqual(await cluster.open(files), []);
    await eventually('a node has seen a lie', () => {
      const lines = cluster.nodes.flatMap((node) => node.log());
      return lines.some(({ code }) => code === 'sha256-mismatch') || undefined;
    });
  });

  test('its disk is full: every byte is right', async (t) => {
    const { cluster, engine } = place();
    const filler = join(engine.disk, 'filler');
    await engine.machine.run(['dd', 'if=/dev/zero', `of=${filler}`, 'bs=4k']);
    t.deepEqual(await cluster.open(troubled(1)), []);
    await engine.machine.must(['rm', filler]);
  });

  for (const [words, signal, number] of [
    ['it stalls', 'STOP', 2],
    ['it is killed', 'KILL', 3],
  ] as const) {
    test(`${words} while it is asked: every byte is right, and what is opened from then on comes from the Hub`, async (t) => {
      const { cluster, engine } = place();
      const files = troubled(number);
      const [before, after] = [files.slice(0, TROUBLED_IMAGES / 2), files.slice(TROUBLED_IMAGES / 2)];
      const opening = cluster.open(before);
      await cluster.someHave(before);
      await engine.machine.signal(signal);
      t.deepEqual(await cluster.open(after), []);
      t.deepEqual(await opening, []);
      const { storage } = cluster.hits();
      for (const { path } of after) t.true((storage.get(path) ?? 0) >= TROUBLED_NODES, path);
      if (signal === 'STOP') await engine.machine.signal('CONT');
    });
  }
}

/** Lets each node open its part of the images; resolves, as `Cluster.open`, when all are published. */
async function divided(cluster: Cluster, files: readonly FakeFile[]): Promise<string[]> {
  const faults = await Promise.all(
    cluster.nodes.map(async (node, index) => {
      const part = files.filter((_, number) => number % cluster.nodes.length === index);
      const wrong = await node.open(part, files);
      // In the log: each answer of `status` is a process more on a busy machine.
      const published = () => node.log().filter(({ msg }) => msg === 'published a blob').length;
      await eventually('what a node has fetched is published', () => published() === part.length || undefined);
      return wrong;
    }),
  );
  return faults.flat();
}
