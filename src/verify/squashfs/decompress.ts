/**
 * The decompressors of squashfs, one block at a time, each bounded in what it may put out. Those that are not Node's
 * own are loaded when an image asks for them, so that a machine without one still proves all other images.
 */

import { inflateSync } from 'node:zlib';
import { messageOf } from '../../errors.js';
import { unsupported } from '../refusal.js';
import type { Compressor } from './compressor-options.js';
import { xzContentBytes } from './xz.js';

/**
 * The content of one compressed block, at most `maxBytes`. Throws any Error if the block is damaged, longer, or
 * followed by something; a `Refusal` if it is of a kind that is not decoded here.
 */
export type Decompress = (input: Buffer, maxBytes: number) => Buffer;

/** Room that tells zlib in one round that there is nothing left to put out. */
const SPARE_BYTES = 64;

/** Throws a `Refusal` (unsupported) if this machine lacks the decompressor. */
export async function openDecompressor(compressor: Compressor): Promise<Decompress> {
  try {
    switch (compressor) {
      case 'gzip':
        return inflateBlock;
      case 'zstd':
        return await openZstd();
      case 'xz':
        return await openXz();
      case 'lz4':
        return await openLz4();
    }
  } catch (error) {
    throw unsupported({
      code: 'squashfs-decompressor-missing',
      message: `this machine can't decompress ${compressor} (${messageOf(error)}); reinstall tmaxfs, or rebuild the image with gzip`,
    });
  }
}

function inflateBlock(input: Buffer, maxBytes: number): Buffer {
  const options = { info: true, maxOutputLength: maxBytes, chunkSize: maxBytes + SPARE_BYTES };
  const result: unknown = inflateSync(input, options);
  if (!isInflateResult(result)) throw new TypeError('zlib does not tell how much it consumed');
  const trailing = input.length - result.engine.bytesWritten;
  if (trailing !== 0) throw new RangeError(`${trailing} bytes follow the zlib stream`);
  return result.buffer;
}

/** What `info: true` makes of the answer; the type declarations don't know it. */
interface InflateResult {
  readonly buffer: Buffer;
  readonly engine: { readonly bytesWritten: number };
}

function isInflateResult(value: unknown): value is InflateResult {
  if (typeof value !== 'object' || value === null || !('buffer' in value) || !('engine' in value)) return false;
  const { buffer, engine } = value;
  return buffer instanceof Buffer && typeof engine === 'object' && engine !== null && 'bytesWritten' in engine;
}

async function openZstd(): Promise<Decompress> {
  const { ZSTDDecoder } = await import('zstddec');
  const decoder = new ZSTDDecoder();
  await decoder.init();
  return (input, maxBytes) => {
    const content = decoder.decode(input, maxBytes);
    // The library answers an error of libzstd with nothing at all.
    if (content.length === 0) throw new RangeError(`it is not a zstd frame of at most ${maxBytes} bytes`);
    return Buffer.from(content.buffer, content.byteOffset, content.byteLength);
  };
}

async function openXz(): Promise<Decompress> {
  const { xz } = await import('@napi-rs/lzma');
  return (input, maxBytes) => {
    const contentBytes = xzContentBytes(input);
    if (contentBytes > maxBytes) throw new RangeError(`it holds ${contentBytes} bytes`);
    return xz.decompressSync(input);
  };
}

async function openLz4(): Promise<Decompress> {
  const { uncompressSync } = await import('lz4-napi');
  return (input, maxBytes) => {
    // The library takes the room for the output from four bytes before the block.
    const framed = Buffer.allocUnsafe(4 + input.length);
    framed.writeUInt32LE(maxBytes, 0);
    input.copy(framed, 4);
    return uncompressSync(framed);
  };
}
