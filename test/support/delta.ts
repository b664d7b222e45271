/**
 * Binary deltas, in which the larger fixtures are kept: several images share most of their blocks. A delta is a brotli
 * stream over u32 count, `count` copies (u32 literal bytes before it, u32 offset in the bases laid end to end, u32
 * length), then all literal bytes; little-endian.
 */

import { brotliCompressSync, brotliDecompressSync, constants, inflateSync } from 'node:zlib';
import * as v from 'valibot';

/** What `info: true` adds to zlib's answer; the type declarations don't know it. */
const InflateResult = v.object({ buffer: v.instance(Buffer), engine: v.looseObject({ bytesWritten: v.number() }) });
const COPY_BYTES = 12;
const MAX_INFLATED_BYTES = 1 << 20;
/** Shortest run of equal bytes worth a copy; also how far apart the bases are sampled. */
const WINDOW_BYTES = 32;

export function applyDelta(delta: Buffer, bases: readonly Buffer[]): Buffer {
  const base = Buffer.concat(bases);
  const content = brotliDecompressSync(delta);
  const copyCount = content.readUInt32LE(0);
  let literal = 4 + copyCount * COPY_BYTES;
  const parts: Buffer[] = [];
  for (let at = 4; at < 4 + copyCount * COPY_BYTES; at += COPY_BYTES) {
    const literalBytes = content.readUInt32LE(at);
    const offset = content.readUInt32LE(at + 4);
    const length = content.readUInt32LE(at + 8);
    parts.push(content.subarray(literal, literal + literalBytes), base.subarray(offset, offset + length));
    literal += literalBytes;
  }
  parts.push(content.subarray(literal));
  return Buffer.concat(parts);
}

/** The contents of all zlib streams in `bytes`, one after the other: a base for images that hold them uncompressed. */
export function inflated(bytes: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at + 2 <= bytes.length; ) {
    const stream = bytes[at] === 0x78 && bytes.readUInt16BE(at) % 31 === 0 ? inflateAt(bytes, at) : undefined;
    if (stream !== undefined) parts.push(stream.content);
    at += stream?.consumedBytes ?? 1;
  }
  return Buffer.concat(parts);
}

function inflateAt(bytes: Buffer, at: number): { content: Buffer; consumedBytes: number } | undefined {
  const input = bytes.subarray(at, at + MAX_INFLATED_BYTES);
  try {
    const { buffer, engine } = v.parse(
      InflateResult,
      inflateSync(input, { info: true, maxOutputLength: MAX_INFLATED_BYTES }),
    );
    return { content: buffer, consumedBytes: engine.bytesWritten };
  } catch {
    return undefined;
  }
}

export function makeDelta(target: Buffer, bases: readonly Buffer[]): Buffer {
  const base = Buffer.concat(bases);
  const text = target.toString('latin1');
  const windows = new Map<string, number>();
  for (let at = 0; at + WINDOW_BYTES <= base.length; at += WINDOW_BYTES) {
    const window = base.toString('latin1', at, at + WINDOW_BYTES);
    if (!windows.has(window)) windows.set(window, at);
  }
  const copies: Buffer[] = [];
  const literals: Buffer[] = [];
  let literalStart = 0;
  for (let at = 0; at + WINDOW_BYTES <= target.length; ) {
    const found = windows.get(text.slice(at, at + WINDOW_BYTES));
    if (found === undefined) {
      at += 1;
      continue;
    }
    let before = 0;
    while (at - before > literalStart && found > before && target[at - before - 1] === base[found - before - 1])
      before += 1;
    let length = WINDOW_BYTES;
    while (
      at + length < target.length &&
      found + length < base.length &&
      target[at + length] === base[found + length]
    ) {
      length += 1;
    }
    const copy = Buffer.alloc(COPY_BYTES);
    copy.writeUInt32LE(at - before - literalStart, 0);
    copy.writeUInt32LE(found - before, 4);
    copy.writeUInt32LE(length + before, 8);
    copies.push(copy);
    literals.push(target.subarray(literalStart, at - before));
    at += length;
    literalStart = at;
  }
  const count = Buffer.alloc(4);
  count.writeUInt32LE(copies.length);
  const content = Buffer.concat([count, ...copies, ...literals, target.subarray(literalStart)]);
  return brotliCompressSync(content, {
    params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length, [constants.BROTLI_PARAM_LGWIN]: 24 },
  });
}
