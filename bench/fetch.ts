/** Fetching: one large image, 256 at once, and the start of a daemon with the published pool. */

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { execa } from 'execa';
import type { FakeFile } from '../src/demo/fake-hub-repository.js';
import { MountedPool } from '../test/support/mounted-pool.js';
import { poolImages, poolTaskMap } from '../test/support/pool-scale.js';
import { buildSif } from '../test/support/sif-writer.js';
import { buildSquashfs } from '../test/support/squashfs-writer.js';
import { temporaryFolder } from '../test/support/temporary.js';
import type { Bench, Contestant } from './bench.js';
import { largeImage } from './support/large-image.js';
import { BenchLifetime } from './support/lifetime.js';
import { startNginxPool } from './support/nginx-pool.js';

/** As the image is not on disk: its blob and the proof of it are taken away. */
async function forget(pool: MountedPool): Promise<void> {
  for (const folder of ['blobs', 'proofs']) {
    const path = join(pool.cacheDirectory, folder);
    await rm(path, { recursive: true });
    await mkdir(path);
  }
}

async function timed(act: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await act();
  return (performance.now() - startedAt) / 1000;
}

async function describeFile(file: string, path: string): Promise<FakeFile> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  const handle = await open(file);
  const { size } = await handle.stat();
  await handle.close();
  return { path, sizeBytes: size, sha256: hash.digest('hex'), lfs: true };
}

export const coldOpen: Bench = {
  name: 'cold-open',
  description: 'an image of 550 MB from nginx on loopback: fetched, hashed, proven, opened',
  setup: async () => {
    const lifetime = new BenchLifetime();
    const storage = dirname(largeImage().path);
    const image = await describeFile(largeImage().path, `images/${basename(largeImage().path)}`);
    const { pool, url } = await startNginxPool(lifetime, storage, { files: [image], tasks: { v: { t: image.path } } });
    const copy = join(temporaryFolder(lifetime), 'copy');
    const curl: Contestant = {
      name: 'curl -o f && sha256sum f',
      run: async () => {
        const seconds = await timed(async () => {
          const { stdout } = await execa('sh', ['-c', `curl -sSo ${copy} ${url(image)} && sha256sum ${copy}`]);
          if (!stdout.startsWith(image.sha256)) throw new Error('the bytes are wrong');
        });
        await rm(copy);
        return { seconds };
      },
    };
    const mount: Contestant = {
      name: 'open through the mount',
      run: async () => {
        await forget(pool);
        const seconds = await timed(() => execa('head', ['-c', '1', pool.path('v/t.sif')]));
        return { seconds };
      },
    };
    return {
      subject: { bytes: image.sizeBytes },
      contestants: [curl, mount],
      goals: [{ contestant: mount.name, reference: curl.name, atMost: 1.25 }],
      teardown: () => lifetime.end(),
    };
  },
};

/** Four of them fill what a node of a cluster gets from the Hub, and leave the cores free, as on such a node. */
const NETWORK_BYTES_PER_SECOND = 10e6;

export const deepOpen: Bench = {
  name: 'deep-open',
  description: 'an image of 550 MB over 4 connections of 10 MB/s, proven at each level while it comes',
  maxRounds: 3,
  setup: async () => {
    const lifetime = new BenchLifetime();
    const storage = dirname(largeImage().path);
    const image = await describeFile(largeImage().path, `images/${basename(largeImage().path)}`);
    const mounted = async (level: string): Promise<Contestant> => {
      const { pool } = await startNginxPool(lifetime, storage, {
        files: [image],
        tasks: { v: { t: image.path } },
        args: ['--verify', level],
        bytesPerSecond: NETWORK_BYTES_PER_SECOND,
      });
      const run = async () => {
        await forget(pool);
        return { seconds: await timed(() => execa('head', ['-c', '1', pool.path('v/t.sif')])) };
      };
      return { name: level, run };
    };
    const contestants = [await mounted('header'), await mounted('structure'), await mounted('deep')];
    return {
      subject: { bytes: image.sizeBytes },
      contestants,
      goals: ['structure', 'deep'].map((contestant) => ({ contestant, reference: 'header', atMost: 1.1 })),
      teardown: () => lifetime.end(),
    };
  },
};

const BURST_IMAGES = 256;
const BURST_BYTES = 50_000_000;
const STAT_PAUSE_MS = 2;

/** Opens every path at once and reads its head; prints the sha256 of each. Needs as many threads as paths. */
const OPENER = `
  const { open } = require('node:fs/promises');
  const { createHash } = require('node:crypto');
  const head = async (path) => {
    const file = await open(path);
    const { buffer } = await file.read(Buffer.alloc(${1 << 16}), 0, ${1 << 16}, 0);
    await file.close();
    return createHash('sha256').update(buffer).digest('hex');
  };
  Promise.all(process.argv.slice(1).map(head)).then((heads) => console.log(heads.join('\\n')));`;

/** Asks for names that are not there, so that no answer is the kernel's own; prints the seconds of each at its end. */
const STATTER = `
  const { statSync } = require('node:fs');
  const seconds = [];
  let last = 0;
  const timer = setInterval(() => {
    const startedAt = performance.now();
    statSync(process.argv[1] + '/nothing-' + (last += 1), { throwIfNoEntry: false });
    seconds.push((performance.now() - startedAt) / 1000);
  }, ${STAT_PAUSE_MS});
  process.stdin.resume().on('end', () => { clearInterval(timer); console.log(JSON.stringify(seconds)); });`;

/** Asks nobody for anything: sleeps, and prints at its end by how many seconds it woke too late each time. */
const BYSTANDER = `
  const sleeping = new Int32Array(new SharedArrayBuffer(4));
  const seconds = [];
  let isOver = false;
  const sleep = () => {
    if (isOver) return console.log(JSON.stringify(seconds));
    const startedAt = performance.now();
    Atomics.wait(sleeping, 0, 0, ${STAT_PAUSE_MS});
    seconds.push((performance.now() - startedAt - ${STAT_PAUSE_MS}) / 1000);
    setImmediate(sleep);
  };
  sleep();
  process.stdin.resume().on('end', () => { isOver = true; });`;

const percentile99 = (seconds: readonly number[]): number =>
  [...seconds].sort((a, b) => a - b)[Math.floor(seconds.length * 0.99)] ?? Number.NaN;

export const burst: Bench = {
  name: 'burst',
  description: `${BURST_IMAGES} distinct images of 50 MB, none on disk, opened at once; stat meanwhile`,
  maxRounds: 1,
  setup: async () => {
    const lifetime = new BenchLifetime();
    const storage = temporaryFolder(lifetime);
    const images: { readonly file: FakeFile; readonly head: string }[] = [];
    for (let seed = 0; seed < BURST_IMAGES; seed += 1) images.push(await makeImage(storage, seed));
    const tasks = { v: Object.fromEntries(images.map(({ file: { path } }, index) => [`t${index}`, path])) };
    const args = ['--cache-size', '20G'];
    const { pool } = await startNginxPool(lifetime, storage, { files: images.map(({ file }) => file), tasks, args });
    const { pid } = await pool.status();
    let statSeconds: number[] = [];
    let lateSeconds: number[] = [];
    const opens: Contestant = {
      name: 'all opened',
      run: async () => {
        await forget(pool);
        await writeFile(`/proc/${pid}/clear_refs`, '5');
        const statter = execa(process.execPath, ['-e', STATTER, pool.path('v')]);
        const bystander = execa(process.execPath, ['-e', BYSTANDER]);
        const paths = images.map((_, index) => pool.path(`v/t${index}.sif`));
        const env = { UV_THREADPOOL_SIZE: String(BURST_IMAGES) };
        let heads = '';
        const seconds = await timed(async () => {
          heads = (await execa(process.execPath, ['-e', OPENER, ...paths], { env })).stdout;
        });
        statter.stdin.end();
        bystander.stdin.end();
        statSeconds = JSON.parse((await statter).stdout);
        lateSeconds = JSON.parse((await bystander).stdout);
        if (heads !== images.map(({ head }) => head).join('\n')) throw new Error('the bytes are wrong');
        return { seconds, peakBytes: await peakBytes(pid) };
      },
    };
    const stats: Contestant = {
      name: 'stat meanwhile, 99th percentile',
      run: async () => ({ seconds: percentile99(statSeconds) }),
    };
    const waking: Contestant = {
      name: 'waking up meanwhile, 99th percentile',
      run: async () => ({ seconds: percentile99(lateSeconds) }),
    };
    return {
      subject: { images: BURST_IMAGES, bytes: BURST_IMAGES * BURST_BYTES },
      contestants: [opens, stats, waking],
      goals: [
        { contestant: opens.name, of: 'peakBytes', atMost: 250e6 },
        { contestant: stats.name, atMost: 0.005 },
      ],
      teardown: () => lifetime.end(),
    };
  },
};

/** Since it was last reset. */
async function peakBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'latin1');
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

/** A small image with a large object behind it, of zeros, which take no room where they are served from. */
async function makeImage(storage: string, seed: number): Promise<{ file: FakeFile; head: string }> {
  const squashfs = buildSquashfs({ kind: 'directory', entries: {} }, {});
  const padding = Buffer.alloc(BURST_BYTES - 100_000);
  const objects = [{ type: 0x4005, content: padding, name: 'padding' }];
  const image = buildSif({ squashfs, labels: { seed: String(seed) }, objects });
  const name = `${seed}.sif`;
  const handle = await open(join(storage, name), 'w');
  await handle.write(image.subarray(0, image.length - padding.length));
  await handle.truncate(image.length);
  await handle.close();
  const sha256Of = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
  const file = { path: `images/${name}`, sizeBytes: image.length, sha256: sha256Of(image), lfs: true };
  return { file, head: sha256Of(image.subarray(0, 1 << 16)) };
}

const MAX_CATALOG_REQUESTS = 20;

export const start: Bench = {
  name: 'start',
  description: 'tmaxfs mount of a pool with 35,181 tasks and 16,203 images, until its tree is readable',
  setup: async () => {
    const lifetime = new BenchLifetime();
    const tasks = poolTaskMap();
    const pool = await MountedPool.prepare(lifetime, { files: poolImages(tasks), tasks });
    const mounting = (name: string, before: () => Promise<unknown>, check: () => void): Contestant => ({
      name,
      run: async () => {
        await before();
        pool.hub.requests.clear();
        const seconds = await timed(() => pool.mount());
        check();
        const peak = await peakBytes((await pool.status()).pid);
        await pool.tmaxfs(['unmount', pool.mountpoint]);
        return { seconds, peakBytes: peak };
      },
    });
    const cold = mounting(
      'cold',
      () => rm(pool.cacheDirectory, { recursive: true, force: true }),
      () => {
        const { length } = pool.hub.requests.all;
        if (length > MAX_CATALOG_REQUESTS) throw new Error(`${length} requests for the catalog`);
      },
    );
    const warm = mounting(
      'warm',
      async () => undefined,
      () => undefined,
    );
    return {
      subject: { 'requests at most': MAX_CATALOG_REQUESTS },
      contestants: [cold, warm],
      goals: [{ contestant: warm.name, atMost: 0.7 }],
      teardown: () => lifetime.end(),
    };
  },
};

export const fetchBenches: readonly Bench[] = [coldOpen, deepOpen, burst, start];
