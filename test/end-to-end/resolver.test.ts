/**
 * `/pool` as the folder that SWERL_APPTAINER_SIF_DIR names: looked up by the rules of the trainers' resolver, over a pool of the
 * published shape. The rules (open_instruct/environments/apptainer_images.py of hamishivi/tmax), in words:
 *
 * 1. An image that is a path, or ends in ".sif", is taken as it is.
 * 2. The folder is listed once a process.
 * 3. The name of the image, each run of characters that a file name may better not have as "__", with ".sif".
 * 4. Else the tag, or the last step of the name, where it is 6 to 64 hex digits: the first file in sort order whose name ends in
 *    "__" and those digits.
 * 5. What is found must be a file, and not empty.
 */

import { readdir, stat } from 'node:fs/promises';
import test from 'ava';
import { MountedPool } from '../support/mounted-pool.js';
import { poolImages, poolTaskMap } from '../support/pool-scale.js';

const HASH = /^[0-9a-f]{6,64}$/;

class Resolver {
  readonly #folder: string;
  readonly #byHash = new Map<string, string>();

  constructor(folder: string, names: readonly string[]) {
    this.#folder = folder;
    for (const name of [...names].sort()) {
      const token = name.endsWith('.sif') ? (name.slice(0, -'.sif'.length).split('__').at(-1) ?? '') : '';
      if (HASH.test(token) && !this.#byHash.has(token)) this.#byHash.set(token, name);
    }
  }

  async resolve(image: string): Promise<string> {
    if (/^\.?\/|\.sif$/.test(image)) return image;
    const [, path = '', tag] = /^(.+?)(?::([\w.-]+))?$/.exec(image) ?? [];
    const named = `${image.replaceAll(/[^A-Za-z0-9._-]+/g, '__')}.sif`;
    const hashed = [tag, path.split('/').at(-1)].flatMap((token) => this.#byHash.get(token?.toLowerCase() ?? '') ?? []);
    for (const name of [named, ...hashed]) {
      const found = await stat(`${this.#folder}/${name}`).catch(() => undefined);
      if (found?.isFile() && found.size > 0) return `${this.#folder}/${name}`;
    }
    return image;
  }
}

test('the trainers’ resolver finds every plain image by its name and by its tag, and nothing derived', async (t) => {
  const tasks = poolTaskMap();
  const files = poolImages(tasks);
  const pool = await MountedPool.start(t, { files, tasks });
  const folder = pool.path('pool');
  const resolver = new Resolver(folder, await readdir(folder));
  const nameOf = (path: string) => path.split('/').at(-1) ?? '';
  const tagOf = (name: string) => /__([0-9a-f]+)\.sif$/.exec(name)?.[1] ?? '';

  const plain = files.filter(({ path }) => !path.startsWith('derived/')).map(({ path }) => nameOf(path));
  t.true(plain.length > 10_000);
  for (const [index, name] of plain.entries()) {
    const tag = tagOf(name);
    const byName = `hamishi740/swerl-tmax-v3:${tag}`;
    const references = index % 10 === 0 ? [byName, `docker.io/somebody-elses/mirror:${tag}`] : [byName];
    for (const reference of references) {
      const found = await resolver.resolve(reference);
      if (found !== `${folder}/${name}`) t.fail(`${reference} is found as ${found}, not as ${name}`);
    }
  }

  const derived = files.filter(({ path }) => path.startsWith('derived/')).map(({ path }) => nameOf(path));
  t.true(derived.length > 1_000);
  for (const name of derived) {
    const reference = `hamishi740/swerl-tmax-v3:${tagOf(name)}`;
    if ((await resolver.resolve(reference)) !== reference)
      t.fail(`${reference} is found, though it is the derived ${name}`);
  }
  for (const image of ['python:3.12', '/elsewhere/x.sif', 'x.sif']) t.is(await resolver.resolve(image), image);
  t.deepEqual(
    pool.hub.requests.filter(({ server }) => server === 'cdn'),
    [],
    'looking is free',
  );
});
