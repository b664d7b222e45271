/**
 * Describes the binary layout of a C struct once, and derives its size, decoder and encoder from it.
 *
 * Values are little-endian, as on every machine that Node supports FUSE on; fields follow each other without gaps (the
 * kernel's structs name their padding). 64-bit fields are `bigint`, narrower ones `number`.
 */

import { TmaxError } from '../../errors.js';

export interface Field<Value> {
  readonly size: number;
  read(bytes: Buffer, offset: number): Value;
  write(bytes: Buffer, offset: number, value: Value): void;
}

export const u16: Field<number> = {
  size: 2,
  read: (bytes, offset) => bytes.readUInt16LE(offset),
  write: (bytes, offset, value) => void bytes.writeUInt16LE(value, offset),
};

export const u32: Field<number> = {
  size: 4,
  read: (bytes, offset) => bytes.readUInt32LE(offset),
  write: (bytes, offset, value) => void bytes.writeUInt32LE(value, offset),
};

export const i32: Field<number> = {
  size: 4,
  read: (bytes, offset) => bytes.readInt32LE(offset),
  write: (bytes, offset, value) => void bytes.writeInt32LE(value, offset),
};

export const u64: Field<bigint> = {
  size: 8,
  read: (bytes, offset) => bytes.readBigUInt64LE(offset),
  write: (bytes, offset, value) => void bytes.writeBigUInt64LE(value, offset),
};

/** Bytes that are sent as zeros and never looked at. */
export function reserved(size: number): Field<undefined> {
  return { size, read: () => undefined, write: (bytes, offset) => void bytes.fill(0, offset, offset + size) };
}

type Fields = Readonly<Record<string, Field<unknown>>>;
export type ValuesOf<Layout extends Fields> = {
  -readonly [Name in keyof Layout]: ReturnType<Layout[Name]['read']>;
};

export interface Struct<Values> extends Field<Values> {
  /** Its name in the kernel's header, for messages. */
  readonly name: string;
  /** Offset of each field in bytes. */
  readonly offsets: Readonly<Record<keyof Values & string, number>>;
  /** Fields that are left out are written as zero. */
  write(bytes: Buffer, offset: number, values: Partial<Values>): void;
}

/** A struct of the kernel's header `name`, its fields in their order. `read` throws EINVAL where bytes are missing. */
export function struct<Layout extends Fields>(name: string, layout: Layout): Struct<ValuesOf<Layout>> {
  const members = placeMembers(layout);
  const size = members.reduce((total, { field }) => total + field.size, 0);
  return {
    name,
    size,
    offsets: Object.fromEntries(members.map((member) => [member.name, member.offset])) as Struct<
      ValuesOf<Layout>
    >['offsets'],
    read(bytes, offset) {
      const available = bytes.length - offset;
      if (available < size) {
        throw new TmaxError('EINVAL', `a message of the kernel ends in ${name}: ${available} of ${size} bytes`);
      }
      const values: Record<string, unknown> = {};
      for (const member of members) values[member.name] = member.field.read(bytes, offset + member.offset);
      return values as ValuesOf<Layout>;
    },
    write(bytes, offset, values: Readonly<Record<string, unknown>>) {
      for (const member of members) {
        const at = offset + member.offset;
        const value = values[member.name];
        if (value === undefined) bytes.fill(0, at, at + member.field.size);
        else member.field.write(bytes, at, value);
      }
    },
  };
}

interface Member {
  readonly name: string;
  readonly offset: number;
  readonly field: Field<unknown>;
}

function placeMembers(layout: Fields): readonly Member[] {
  let offset = 0;
  return Object.entries(layout).map(([name, field]) => {
    const member = { name, offset, field };
    offset += field.size;
    return member;
  });
}
