/** What a daemon does with proofs of other settings, with images for other machines, and with a disk that forgets. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import test from 'ava';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import { flipBit } from '../support/bit-rot.js';
import { MountedPool, type MountedPoolOptions } from '../support/mounted-pool.js';
import { buildSif, tinyImage } from '../support/sif-writer.js';
import { buildSquashfs } from '../support/squashfs-writer.js';

const TASKS = { v: { t0: 'images/0.sif' } };
const open = (pool: MountedPool) => pool.run('sha256sum', [pool.path('v/t0.sif')]);

/** The same pool and cache under a daemon with other options. */
async function remounted(pool: MountedPool, args: readonly string[]): Promise<MountedPool> {
  await pool.tmaxfs(['unmount', pool.mountpoint]);
  await pool.tmaxfs([
    'mount',
    pool.mountpoint,
    ...['--repo', 'test-org/test-pool', '--cache-dir', pool.cacheDirectory, '--log-file', pool.logFile],
    ...args,
  ]);
  return pool;
}

function poolOf(image: Buffer, args: readonly string[] = []): MountedPoolOptions & { readonly file: FakeFile } {
  const file = fileOf('images/0.sif', image);
  return { file, files: [file], tasks: TASKS, args };
}

/** Proven down to its structure, and yet its one compressed block holds garbage. */
function brokenDeepDown(): Buffer {
  const squashfs = buildSquashfs({
    kind: 'directory',
    entries: { text: { kind: 'file', content: Buffer.alloc(100_000, 'words that can be compressed. ') } },
  });
  const image = buildSif({ squashfs });
  const start = image.indexOf('hsqs') + 96;
  return image.fill(0xff, start + 4, start + 40);
}

test.serial(
  'a cache proven at structure is proven again by a daemon that asks for deep, without the network',
  async (t) => {
    const options = poolOf(tinyImage(1, 200_000));
    const pool = await MountedPool.start(t, options);
    await open(pool);
    const { sha256 } = options.file;
    const proof = () =>
      JSON.parse(readFileSync(join(pool.cacheDirectory, 'proofs', sha256.slice(0, 2), sha256), 'utf8'));
    t.is(proof().level, 'structure');
    await remounted(pool, ['--verify', 'deep']);
    t.true((await open(pool)).stdout.startsWith(sha256));
    t.is(proof().level, 'deep');
    t.is(pool.hub.requests.about('images/0.sif', 'cdn').length, 1);
  },
);

test.serial('an image that only deep finds broken is refused by a daemon that asks for deep', async (t) => {
  const pool = await MountedPool.start(t, poolOf(brokenDeepDown()));
  t.is((await open(pool)).exitCode, 0, 'its structure is sound');
  await remounted(pool, ['--verify', 'deep']);
  t.regex((await open(pool)).stderr, /Bad message/);
  const { quarantine, verifyLevel } = await pool.status();
  t.is(verifyLevel, 'deep');
  t.like(quarantine[0], { cause: 'image', level: 'deep' });
});

test.serial(
  'an image for another machine is served with one warning and its architecture, or refused if asked to',
  async (t) => {
    const foreign = process.arch === 'arm64' ? 'amd64' : 'arm64';
    const image = buildSif({ squashfs: buildSquashfs({ kind: 'directory', entries: {} }), architecture: foreign });
    const pool = await MountedPool.start(t, poolOf(image));
    const attribute = (name: string) =>
      pool.run('getfattr', ['--only-values', '-n', `user.tmaxfs.${name}`, pool.path('v/t0.sif')]);
    const warnings = () => pool.logged(({ msg }) => String(msg).includes(`is an image for ${foreign}`));
    for (const _ of [1, 2]) t.is((await open(pool)).exitCode, 0);
    t.is((await attribute('architecture')).stdout, foreign);
    t.is((await warnings()).length, 1);
    await remounted(pool, ['--arch', 'host']);
    t.is((await attribute('architecture')).stdout, foreign, 'known after a restart');
    for (const _ of [1, 2]) t.regex((await open(pool)).stderr, /Bad message/);
    t.regex((await attribute('error')).stdout, new RegExp(`${foreign}.*--arch any`));
    t.is(pool.hub.requests.about('images/0.sif', 'cdn').length, 1);
  },
);

test.serial('a flipped bit is found by the scrub of a running daemon, and mended by the next open', async (t) => {
  const options = poolOf(tinyImage(1, 200_000), ['--scrub', '1s']);
  const pool = await MountedPool.start(t, options);
  await open(pool);
  const { sha256 } = options.file;
  const blob = join(pool.cacheDirectory, 'blobs', sha256.slice(0, 2), sha256);
  flipBit(blob, 150_000);
  while (existsSync(blob)) await delay(50);
  t.true((await pool.status()).scrub?.damagedBlobs === 1);
  t.truthy(await pool.logged(({ msg }) => String(msg).includes('is damaged')));
  t.true((await open(pool)).stdout.startsWith(sha256));
  t.is(pool.hub.requests.about('images/0.sif', 'cdn').length, 2);
});
