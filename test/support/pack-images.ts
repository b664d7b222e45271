/**
 * Makes test/fixtures/sif/good.json and the deltas beside it from a folder of whole images; run by hand when an image
 * is added: node build/test/support/pack-images.js <folder>. The demo's images are kept whole and serve as bases.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { inflated, makeDelta } from './delta.js';
import { sifFixturesFolder } from './paths.js';
import { sha256Of } from './sif-writer.js';

const GZIP_BASES = ['tiny-gzip', 'rich-xattr-gzip'];
/** In the order in which they can be restored; without bases: kept whole in src/demo/images. */
const IMAGES: Readonly<Record<string, readonly string[] | undefined>> = {
  'tiny-gzip': undefined,
  'tiny-zstd': undefined,
  'tiny-gzip-signed': ['tiny-gzip'],
  'tiny-gzip-overlay': ['tiny-gzip'],
  'rich-xattr-gzip': ['tiny-gzip'],
  'rich-gzip-nopad': GZIP_BASES,
  'rich-xattr-zstd': [...GZIP_BASES, 'tiny-zstd'],
  'rich-xattr-gzip-nocomp': [...GZIP_BASES, 'rich-xattr-gzip#inflated'],
  'rich-lz4': [...GZIP_BASES, 'rich-gzip-nopad', 'rich-xattr-gzip#inflated'],
  'rich-xz': [...GZIP_BASES, 'rich-gzip-nopad'],
};

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error('usage: pack-images <folder of whole images>');
const whole = (name: string): Buffer => readFileSync(`${folder}/${name}.sif`);
const base = (form: string): Buffer =>
  form.endsWith('#inflated') ? inflated(whole(form.replace('#inflated', ''))) : whole(form);
const index: Record<string, unknown> = {};
for (const [name, bases] of Object.entries(IMAGES)) {
  const bytes = whole(name);
  index[name] = { sizeBytes: bytes.length, sha256: sha256Of(bytes), ...(bases === undefined ? {} : { bases }) };
  if (bases === undefined) continue;
  writeFileSync(`${sifFixturesFolder}${name}.delta`, makeDelta(bytes, bases.map(base)));
}
writeFileSync(`${sifFixturesFolder}good.json`, `${JSON.stringify(index, null, 2)}\n`);
