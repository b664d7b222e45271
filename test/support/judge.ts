/** Asks for a verdict on bytes, with the expectation taken from the bytes themselves: only their form is judged. */

import { rmSync } from 'node:fs';
import type { Verdict, VerifyLevel } from '../../src/verify/verdict.js';
import { verifyImage } from '../../src/verify/verify.js';
import { imageFile } from './images.js';

let count = 0;

export async function judge(bytes: Buffer, level: VerifyLevel): Promise<Verdict> {
  count += 1;
  const path = imageFile(`judged-${count}`, bytes);
  try {
    return await verifyImage(path, { sizeBytes: bytes.length, sha256: '', computedSha256: '' }, level);
  } finally {
    rmSync(path);
  }
}
