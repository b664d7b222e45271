/**
 * Random damage to good images, for the property tests and for long runs by hand (`npm run fuzz -- 100000`).
 * Images whose metadata lies bare let the damage through to where meaning is checked, behind the checksums.
 */

import fc from 'fast-check';
import { judge } from './judge.js';
import { tinyImage } from './sif-writer.js';

/** A verdict on a damaged image of 40 to 200 KB takes about a millisecond; on a machine under load, never that long. */
const VERDICT_LIMIT_MS = 5000;
const DESCRIPTORS = 4096;
const PARTITION = 32_768;

/** Where damage is aimed at: anywhere, the SIF header, the descriptors, the superblock, or the tables at the end. */
const AIMS = ['anywhere', 'header', 'descriptors', 'superblock', 'tables'] as const;
const TELLING_VALUES = [
  0n,
  1n,
  0x7fffn,
  0x8000n,
  0xffffn,
  0x7fff_ffffn,
  0x8000_0000n,
  0xffff_ffffn,
  1n << 40n,
  (1n << 64n) - 1n,
];

export interface Damage {
  readonly base: number;
  readonly aim: (typeof AIMS)[number];
  /** In [0, 1): where within what is aimed at. */
  readonly position: number;
  readonly edit:
    | { readonly kind: 'flip'; readonly bit: number }
    | { readonly kind: 'byte'; readonly value: number }
    | { readonly kind: 'value'; readonly widthBytes: number; readonly value: bigint }
    | { readonly kind: 'zeros'; readonly lengthBytes: number }
    | { readonly kind: 'move'; readonly lengthBytes: number; readonly distanceBytes: number }
    | { readonly kind: 'cut' };
}

const bases: readonly Buffer[] = [
  tinyImage(1, 1000, { compressMetadata: false }),
  tinyImage(2, 140_000, { compressMetadata: false, exportable: false }),
  tinyImage(3, 5000),
];

const damage: fc.Arbitrary<Damage> = fc.record({
  base: fc.nat(bases.length - 1),
  aim: fc.constantFrom(...AIMS),
  position: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  edit: fc.oneof(
    fc.record({ kind: fc.constant('flip' as const), bit: fc.nat(7) }),
    fc.record({ kind: fc.constant('byte' as const), value: fc.nat(255) }),
    fc.record({
      kind: fc.constant('value' as const),
      widthBytes: fc.constantFrom(2, 4, 8),
      value: fc.oneof(fc.constantFrom(...TELLING_VALUES), fc.bigInt(0n, 300n), fc.bigInt(0n, 200_000n)),
    }),
    fc.record({ kind: fc.constant('zeros' as const), lengthBytes: fc.nat(5000) }),
    fc.record({
      kind: fc.constant('move' as const),
      lengthBytes: fc.nat(64),
      distanceBytes: fc.integer({ min: -96, max: 96 }),
    }),
    fc.record({ kind: fc.constant('cut' as const) }),
  ),
});

/** One to four injuries to one image. */
export const injuries: fc.Arbitrary<readonly Damage[]> = fc.array(damage, { minLength: 1, maxLength: 4 });

/** The image that the injuries leave behind; the first one chooses the image. */
export function injured(damages: readonly Damage[]): Buffer {
  let bytes = Buffer.from(bases[damages[0]?.base ?? 0] ?? Buffer.alloc(0));
  for (const { aim, edit, position } of damages) {
    const [from, length] = target(bytes, aim);
    const at = Math.min(bytes.length - 1, from + Math.floor(position * length));
    if (at < 0) break;
    switch (edit.kind) {
      case 'flip':
        bytes.writeUInt8(bytes.readUInt8(at) ^ (1 << edit.bit), at);
        break;
      case 'byte':
        bytes.writeUInt8(edit.value, at);
        break;
      case 'value': {
        const value = Buffer.alloc(8);
        value.writeBigUInt64LE(edit.value);
        value.copy(bytes, at, 0, edit.widthBytes);
        break;
      }
      case 'zeros':
        bytes.fill(0, at, Math.min(bytes.length, at + edit.lengthBytes));
        break;
      case 'move':
        bytes.copy(bytes, Math.max(0, at + edit.distanceBytes), at, at + edit.lengthBytes);
        break;
      case 'cut':
        bytes = bytes.subarray(0, at);
        break;
    }
  }
  return bytes;
}

/** Start and length of what is aimed at. */
function target(bytes: Buffer, aim: Damage['aim']): readonly [number, number] {
  switch (aim) {
    case 'anywhere':
      return [0, bytes.length];
    case 'header':
      return [0, 128];
    case 'descriptors':
      return [DESCRIPTORS, 4 * 585];
    case 'superblock':
      return [PARTITION, 96];
    case 'tables': {
      const tables =
        bytes.length >= PARTITION + 96 ? PARTITION + Number(bytes.readBigUInt64LE(PARTITION + 64) % 500_000n) : 0;
      return [tables, Math.max(0, bytes.length - tables)];
    }
  }
}

/** Judges `count` injured images; throws if one throws, or takes too long. Answers with how many passed as valid. */
export async function judgeInjured(count: number, seed?: number): Promise<number> {
  let valid = 0;
  const property = fc.asyncProperty(injuries, async (damages) => {
    const started = performance.now();
    const verdict = await judge(injured(damages), 'deep');
    const elapsedMs = performance.now() - started;
    if (elapsedMs > VERDICT_LIMIT_MS) throw new Error(`a verdict took ${elapsedMs} ms`);
    if (verdict.outcome === 'valid') valid += 1;
  });
  await fc.assert(property, { numRuns: count, ...(seed === undefined ? {} : { seed }) });
  return valid;
}
