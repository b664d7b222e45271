/**
 * An image of the size and shape of the published ones: about 550 MB of gzip squashfs with about 40,000 inodes, the same
 * bytes wherever the same mksquashfs makes it. Made once, in about a minute, and kept in build/bench/.
 */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { packagePath } from '../../test/support/paths.js';
import { buildSif, pseudorandomBytes } from '../../test/support/sif-writer.js';

/** Part of the file's name: raise it whenever what is made here changes. */
const FORM = 1;
const PACKAGES = 40;
const FOLDERS = 1900;
const FILES_PER_FOLDER = 19;
const LINKS_PER_FOLDER = 1;
/** Content that files are cut from: far more than what any compressor looks back on. */
const SOUP_BYTES = 64 << 20;
const MEAN_FILE_BYTES = 20_200;
/** Of each stretch of the soup so much is noise, the rest words: gzip makes half of it. */
const STRETCH_BYTES = 2048;
const NOISE_BYTES = 700;

export interface LargeImage {
  readonly path: string;
  readonly sizeBytes: number;
  readonly inodes: number;
}

export function largeImage(): LargeImage {
  const path = packagePath('build', 'bench', `large-gzip-${FORM}.sif`);
  if (!existsSync(path)) make(path);
  const inodes = 1 + PACKAGES + FOLDERS * (1 + FILES_PER_FOLDER + LINKS_PER_FOLDER);
  return { path, sizeBytes: statSync(path).size, inodes };
}

function make(path: string): void {
  mkdirSync(dirname(path), { recursive: true });
  const work = mkdtempSync(join(dirname(path), 'making-'));
  try {
    const folder = join(work, 'root');
    fill(folder);
    const squashfs = join(work, 'squashfs');
    const fixed = ['-all-root', '-no-xattrs', '-mkfs-time', '0', '-all-time', '0'];
    execFileSync('mksquashfs', [folder, squashfs, '-comp', 'gzip', '-quiet', '-no-progress', ...fixed]);
    writeFileSync(join(work, 'image.sif'), buildSif({ squashfs }));
    renameSync(join(work, 'image.sif'), path);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

function fill(root: string): void {
  const soup = makeSoup();
  const random = new Random('files');
  for (let folder = 0; folder < FOLDERS; folder += 1) {
    const path = join(root, `package-${folder % PACKAGES}`, `module-${folder}`);
    mkdirSync(path, { recursive: true });
    for (let file = 0; file < FILES_PER_FOLDER; file += 1) {
      // Many small ones and a few large ones, as in any system: the sizes fall off exponentially.
      const length = Math.min(SOUP_BYTES / 4, Math.ceil(-Math.log(1 - random.next()) * MEAN_FILE_BYTES));
      const start = Math.floor(random.next() * (SOUP_BYTES - length));
      writeFileSync(join(path, `a file of usual length ${file}.py`), soup.subarray(start, start + length));
    }
    symlinkSync('a file of usual length 0.py', join(path, 'link'));
  }
}

function makeSoup(): Buffer {
  const words = Array.from({ length: 4096 }, (_, index) =>
    createHash('sha256')
      .update(`word ${index}`)
      .digest('base64url')
      .slice(0, 3 + (index % 9)),
  );
  const random = new Random('words');
  const soup = pseudorandomBytes(1, SOUP_BYTES);
  for (let at = 0; at < SOUP_BYTES; at += STRETCH_BYTES) {
    let text = '';
    while (text.length < STRETCH_BYTES - NOISE_BYTES) text += `${words[Math.floor(random.next() ** 2 * 4096)]} `;
    soup.write(text, at, STRETCH_BYTES - NOISE_BYTES, 'latin1');
  }
  return soup;
}

/** Numbers in [0, 1) that follow from the seed, by splitmix32. */
class Random {
  #state: number;

  constructor(seed: string) {
    this.#state = createHash('sha256').update(seed).digest().readUInt32LE();
  }

  next(): number {
    this.#state = (this.#state + 0x9e3779b9) >>> 0;
    let mixed = this.#state ^ (this.#state >>> 16);
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed ^= mixed >>> 15;
    mixed = Math.imul(mixed, 0x735a2d97);
    mixed ^= mixed >>> 15;
    return (mixed >>> 0) / 2 ** 32;
  }
}
