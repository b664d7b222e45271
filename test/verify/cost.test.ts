/** What a proof costs in memory. Time is measured by hand (docs/verification.md): it depends on the machine. */

import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import * as v from 'valibot';
import { imageFile } from '../support/images.js';
import { buildSif, pseudorandomBytes } from '../support/sif-writer.js';
import { buildSquashfs, type TreeNode } from '../support/squashfs-writer.js';

const MEBIBYTE = 1 << 20;
const Measured = v.object({ outcome: v.string(), elapsedMs: v.number(), peakBytes: v.number() });

function measure(path: string, level: string): v.InferOutput<typeof Measured> {
  const script = fileURLToPath(new URL('../support/verify-once.js', import.meta.url));
  return v.parse(Measured, JSON.parse(execFileSync(process.execPath, [script, path, level], { encoding: 'utf8' })));
}

// Node itself takes 45 MiB. What a block was inflated to is garbage until V8 sees 32 MiB of it, which `deep` adds: far
// from the 96 MiB that it would add if it held the data.
const LIMITS = { structure: 100 * MEBIBYTE, deep: 128 * MEBIBYTE };

test('40,000 inodes are proven within 100 MiB of memory, and 96 MiB of their data within 128', (t) => {
  const folders = Array.from({ length: 400 }, (_, folder): [string, TreeNode] => {
    const files = Array.from({ length: 100 }, (_, file): [string, TreeNode] => [
      `a module with a name of usual length ${file}.py`,
      { kind: 'file', content: pseudorandomBytes(folder * 100 + file, 20 + file) },
    ]);
    return [`package ${folder}`, { kind: 'directory', entries: Object.fromEntries(files) }];
  });
  const data: TreeNode = { kind: 'file', content: Buffer.alloc(96 * MEBIBYTE, pseudorandomBytes(1, 5000)) };
  const squashfs = buildSquashfs({ kind: 'directory', entries: { ...Object.fromEntries(folders), data } });
  const path = imageFile('many-inodes', buildSif({ squashfs }));
  for (const level of ['structure', 'deep'] as const) {
    const { outcome, peakBytes } = measure(path, level);
    t.is(outcome, 'valid');
    t.true(peakBytes < LIMITS[level], `${level} took ${Math.round(peakBytes / MEBIBYTE)} MiB`);
  }
});
