/**
 * The images that apptainer built, and the damaged ones made from them, restored from their compact form in
 * test/fixtures/sif and checked by digest. They are written into a folder that lives as long as the thread.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inflateSync } from 'node:zlib';
import * as v from 'valibot';
import { applyDelta, inflated } from './delta.js';
import { demoImagesFolder, sifFixturesFolder } from './paths.js';
import { sha256Of } from './sif-writer.js';

/** A good image is a file of the demo, or a delta against others of this list. */
const GoodImages = v.record(
  v.string(),
  v.object({ sizeBytes: v.number(), sha256: v.string(), bases: v.optional(v.array(v.string())) }),
);
const BrokenRows = v.array(
  v.object({
    name: v.string(),
    verdict: v.string(),
    why: v.string(),
    base: v.nullable(v.string()),
    size: v.number(),
    sha256: v.string(),
    content: v.optional(v.string()),
    edits: v.optional(v.string()),
  }),
);
const Edits = v.array(v.tuple([v.number(), v.string()]));

export interface GoodImage {
  readonly name: string;
  readonly sizeBytes: number;
  readonly sha256: string;
}

export interface BrokenImage {
  readonly name: string;
  /** What whoever made the damage holds of it, in words. */
  readonly verdict: string;
  readonly why: string;
  readonly bytes: Buffer;
}

const index = v.parse(GoodImages, JSON.parse(readFileSync(`${sifFixturesFolder}good.json`, 'utf8')));
const cachedBytes = new Map<string, Buffer>();
let folder: string | undefined;

export const goodImages: readonly GoodImage[] = Object.entries(index).map(([name, { sizeBytes, sha256 }]) => ({
  name,
  sizeBytes,
  sha256,
}));

/** The bytes of one of `goodImages`, shared: not to be changed in place. */
export function goodImageBytes(name: string): Buffer {
  const cached = cachedBytes.get(name);
  if (cached !== undefined) return cached;
  const entry = index[name];
  if (entry === undefined) throw new Error(`there is no good image ${name}; test/fixtures/sif/good.json lists them`);
  const bytes =
    entry.bases === undefined
      ? readFileSync(`${demoImagesFolder}${name}.sif`)
      : applyDelta(readFileSync(`${sifFixturesFolder}${name}.delta`), entry.bases.map(baseBytes));
  if (sha256Of(bytes) !== entry.sha256) throw new Error(`the good image ${name} was not restored as it was`);
  cachedBytes.set(name, bytes);
  return bytes;
}

/** A base of a delta: a good image, or with "#inflated" behind its name what its zlib streams hold. */
function baseBytes(base: string): Buffer {
  const [name = '', form] = base.split('#');
  return form === 'inflated' ? inflated(goodImageBytes(name)) : goodImageBytes(name);
}

/** Path of a good image's file, which the test must leave as it is. */
export function goodImage(name: string): string {
  return imageFile(name, goodImageBytes(name));
}

/** Writes bytes into the thread's folder as `<name>.sif` and answers with the path. */
export function imageFile(name: string, bytes: Buffer): string {
  if (folder === undefined) {
    const made = mkdtempSync(join(tmpdir(), 'tmaxfs-images-'));
    process.once('exit', () => rmSync(made, { recursive: true, force: true }));
    folder = made;
  }
  const path = join(folder, `${name}.sif`);
  writeFileSync(path, bytes);
  return path;
}

/** Every damaged image that was handed over (broken.json), with its maker's verdict. */
export function brokenImages(): BrokenImage[] {
  const rows = v.parse(BrokenRows, JSON.parse(readFileSync(`${sifFixturesFolder}broken.json`, 'utf8')));
  return rows.map((row) => {
    const bytes = row.content === undefined ? edited(row) : inflateSync(Buffer.from(row.content, 'base64'));
    if (sha256Of(bytes) !== row.sha256) throw new Error(`the broken image ${row.name} was not restored as it was`);
    return { name: row.name, verdict: row.verdict, why: row.why, bytes };
  });
}

/** `edits`: deflated lines; a JSON list of [offset, hex] pairs, then the hex of what is appended to the base. */
function edited(row: v.InferOutput<typeof BrokenRows>[number]): Buffer {
  const text = inflateSync(Buffer.from(row.edits ?? '', 'base64')).toString('utf8');
  const [edits = '[]', tail = ''] = text.split('\n');
  const bytes = Buffer.concat([goodImageBytes(row.base ?? '').subarray(0, row.size), Buffer.from(tail, 'hex')]);
  for (const [offset, hex] of v.parse(Edits, JSON.parse(edits))) Buffer.from(hex, 'hex').copy(bytes, offset);
  return bytes;
}
