/**
 * Thrift's compact protocol as far as Parquet's footers use it, with every type kept: what is decoded and encoded again has the same
 * fields, those that this program knows nothing of included. Source: Apache Thrift, doc/specs/thrift-compact-protocol.md.
 */

import { TmaxError } from '../errors.js';

/** Types as the protocol numbers them. */
export const ThriftType = {
  TRUE: 1,
  FALSE: 2,
  BYTE: 3,
  I16: 4,
  I32: 5,
  I64: 6,
  DOUBLE: 7,
  BINARY: 8,
  LIST: 9,
  STRUCT: 12,
} as const;

/** Fields by their number. */
export type ThriftStruct = Map<number, ThriftField>;

export interface ThriftList {
  readonly elementType: number;
  readonly items: ThriftContent[];
}

/** A boolean is its type alone; a byte, and a boolean within a list, is a number; a double its 8 bytes as they are. */
export type ThriftContent = number | bigint | Buffer | ThriftList | ThriftStruct;

export interface ThriftField {
  readonly type: number;
  readonly content: ThriftContent;
}

/** Parquet's own structs are seven deep. */
const MAX_DEPTH = 32;
const MAX_VARINT_BYTES = 10;
const DOUBLE_BYTES = 8;
/** From this many elements on, the length of a list has bytes of its own. */
const LONG_LIST = 15;

/** Errors: EBADMSG. */
export function decodeStruct(bytes: Buffer): ThriftStruct {
  return new Decoder(bytes).struct(0);
}

export function encodeStruct(struct: ThriftStruct): Buffer {
  const encoder = new Encoder();
  encoder.struct(struct);
  return encoder.bytes();
}

class Decoder {
  #offset = 0;
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  struct(depth: number): ThriftStruct {
    if (depth > MAX_DEPTH) throw malformed('it is nested too deep');
    const fields: ThriftStruct = new Map();
    let id = 0;
    for (;;) {
      const head = this.#byte();
      const type = head & 0x0f;
      if (type === 0) return fields;
      const step = head >> 4;
      id = step === 0 ? Number(this.#zigzag()) : id + step;
      fields.set(id, { type, content: this.#content(type, depth, false) });
    }
  }

  #content(type: number, depth: number, isElement: boolean): ThriftContent {
    switch (type) {
      case ThriftType.TRUE:
      case ThriftType.FALSE:
        return isElement ? this.#byte() : type;
      case ThriftType.BYTE:
        return this.#byte();
      case ThriftType.I16:
      case ThriftType.I32:
      case ThriftType.I64:
        return this.#zigzag();
      case ThriftType.DOUBLE:
        return this.#take(DOUBLE_BYTES);
      case ThriftType.BINARY:
        return this.#take(Number(this.#varint()));
      case ThriftType.LIST:
        return this.#list(depth);
      case ThriftType.STRUCT:
        return this.struct(depth + 1);
      default:
        throw malformed(`it has a field of type ${type}`);
    }
  }

  #list(depth: number): ThriftList {
    if (depth > MAX_DEPTH) throw malformed('it is nested too deep');
    const head = this.#byte();
    const elementType = head & 0x0f;
    const length = head >> 4 === LONG_LIST ? Number(this.#varint()) : head >> 4;
    // Every element has a byte at least.
    if (length > this.#bytes.length - this.#offset) throw malformed('a list is longer than the whole');
    const items: ThriftContent[] = [];
    for (let index = 0; index < length; index += 1) items.push(this.#content(elementType, depth + 1, true));
    return { elementType, items };
  }

  #zigzag(): bigint {
    const folded = this.#varint();
    return (folded >> 1n) ^ -(folded & 1n);
  }

  #varint(): bigint {
    let value = 0n;
    for (let index = 0; index < MAX_VARINT_BYTES; index += 1) {
      const byte = this.#byte();
      value |= BigInt(byte & 0x7f) << BigInt(7 * index);
      if (byte < 0x80) return value;
    }
    throw malformed('a number has no end');
  }

  #byte(): number {
    return this.#take(1).readUInt8(0);
  }

  #take(length: number): Buffer {
    if (length > this.#bytes.length - this.#offset) throw malformed('it ends too early');
    this.#offset += length;
    return this.#bytes.subarray(this.#offset - length, this.#offset);
  }
}

class Encoder {
  readonly #chunks: Buffer[] = [];

  bytes(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  struct(fields: ThriftStruct): void {
    let previous = 0;
    for (const [id, { type, content }] of [...fields].sort(([a], [b]) => a - b)) {
      const step = id - previous;
      if (step > 0 && step < 16) this.#byte((step << 4) | type);
      else {
        this.#byte(type);
        this.#zigzag(BigInt(id));
      }
      previous = id;
      if (type !== ThriftType.TRUE && type !== ThriftType.FALSE) this.#content(type, content);
    }
    this.#byte(0);
  }

  #content(type: number, content: ThriftContent): void {
    if (typeof content === 'number') this.#byte(content);
    else if (typeof content === 'bigint') this.#zigzag(content);
    else if (content instanceof Map) this.struct(content);
    else if (Buffer.isBuffer(content)) {
      if (type === ThriftType.BINARY) this.#varint(BigInt(content.length));
      this.#chunks.push(content);
    } else {
      const { elementType, items } = content;
      if (items.length < LONG_LIST) this.#byte((items.length << 4) | elementType);
      else {
        this.#byte((LONG_LIST << 4) | elementType);
        this.#varint(BigInt(items.length));
      }
      for (const item of items) this.#content(elementType, item);
    }
  }

  #zigzag(value: bigint): void {
    this.#varint(BigInt.asUintN(64, (value << 1n) ^ (value >> 63n)));
  }

  #varint(value: bigint): void {
    let rest = value;
    while (rest >= 0x80n) {
      this.#byte(Number(rest & 0x7fn) | 0x80);
      rest >>= 7n;
    }
    this.#byte(Number(rest));
  }

  #byte(value: number): void {
    this.#chunks.push(Buffer.of(value));
  }
}

function malformed(what: string): TmaxError {
  return new TmaxError('EBADMSG', `the footer of the Parquet file can't be read: ${what}`, { source: 'dataset' });
}
