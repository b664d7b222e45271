/**
 * The descriptor table of a SIF: what objects it holds and where. No count is believed before the bytes that it speaks
 * of are known to be there.
 * Format: github.com/apptainer/sif, pkg/sif (header and rawDescriptor); little-endian, packed.
 */

import type { ImageFile } from './image-file.js';
import { invalid, type Refusal, unsupported } from './refusal.js';

export const SIF_HEADER_BYTES = 128;
const DESCRIPTOR_BYTES = 585;
/** More than that many descriptors (apptainer writes 48) are not read. */
const MAX_DESCRIPTORS = 4096;

export interface SifObject {
  readonly id: number;
  readonly type: number;
  readonly offsetBytes: number;
  readonly sizeBytes: number;
  /** Absolute offset of the descriptor. */
  readonly descriptorOffset: number;
  readonly descriptor: Buffer;
}

interface DescriptorTable {
  readonly offsetBytes: number;
  readonly endBytes: number;
  readonly dataOffsetBytes: number;
  readonly usedCount: number;
  readonly bytes: Buffer;
}

/**
 * The objects that the descriptors speak of: all in the file, behind the descriptors, disjoint and as many as the
 * header says. `header`: the file's first `SIF_HEADER_BYTES`. Throws a `Refusal`; errors: EIO.
 */
export function readObjects(image: ImageFile, header: Buffer): SifObject[] {
  const table = readDescriptorTable(image, header);
  const objects: SifObject[] = [];
  const seen = new Set<number>();
  for (let at = 0; at < table.bytes.length; at += DESCRIPTOR_BYTES) {
    const descriptor = table.bytes.subarray(at, at + DESCRIPTOR_BYTES);
    if (descriptor.readUInt8(4) === 0) continue;
    const object = readObject(image, table, descriptor, table.offsetBytes + at);
    if (object.id === 0 || seen.has(object.id)) {
      throw refuseDescriptor(object.descriptorOffset, 'id', 5, object.id, 'a number that no other object has');
    }
    seen.add(object.id);
    objects.push(object);
  }
  if (objects.length !== table.usedCount) {
    throw invalid({
      code: 'sif-header',
      field: 'dfree',
      offsetBytes: 80,
      found: `a count of free descriptors that leaves ${table.usedCount} objects`,
      expected: `the ${objects.length} that are marked as used`,
    });
  }
  proveDisjoint(objects);
  return objects;
}

function readDescriptorTable(image: ImageFile, header: Buffer): DescriptorTable {
  const size = image.sizeBytes;
  const total = headerNumber(header, 'dtotal', 88, 1, Math.floor((size - SIF_HEADER_BYTES) / DESCRIPTOR_BYTES));
  const free = headerNumber(header, 'dfree', 80, 0, total);
  const tableBytes = total * DESCRIPTOR_BYTES;
  const offsetBytes = headerNumber(header, 'descriptor offset', 96, SIF_HEADER_BYTES, size - tableBytes);
  headerNumber(header, 'descriptor bytes', 104, tableBytes, size - offsetBytes);
  const endBytes = offsetBytes + tableBytes;
  const dataOffsetBytes = headerNumber(header, 'data offset', 112, endBytes, size);
  headerNumber(header, 'data bytes', 120, 0, size - dataOffsetBytes);
  if (total > MAX_DESCRIPTORS) {
    throw unsupported({
      code: 'sif-descriptor-count',
      field: 'dtotal',
      offsetBytes: 88,
      found: String(total),
      expected: `at most ${MAX_DESCRIPTORS}`,
      message: `the SIF has room for ${total} descriptors, more than the ${MAX_DESCRIPTORS} that are read; rebuild it with "apptainer build"`,
    });
  }
  const bytes = image.read(offsetBytes, tableBytes);
  return { offsetBytes, endBytes, dataOffsetBytes, usedCount: total - free, bytes };
}

/** A signed 64-bit number of the header that must lie in [minimum, maximum]. */
function headerNumber(header: Buffer, field: string, offsetBytes: number, minimum: number, maximum: number): number {
  const value = header.readBigInt64LE(offsetBytes);
  if (value < minimum || value > maximum) {
    throw invalid({
      code: 'sif-header',
      field,
      offsetBytes,
      found: String(value),
      expected: `${minimum} to ${maximum}`,
    });
  }
  return Number(value);
}

function readObject(image: ImageFile, table: DescriptorTable, descriptor: Buffer, descriptorOffset: number): SifObject {
  const size = descriptor.readBigInt64LE(25);
  const room = image.sizeBytes - table.dataOffsetBytes;
  if (size < 0 || size > room) {
    throw refuseDescriptor(descriptorOffset, 'size', 25, size, `0 to the ${room} bytes that the file has for objects`);
  }
  const sizeBytes = Number(size);
  const offset = descriptor.readBigInt64LE(17);
  const last = image.sizeBytes - sizeBytes;
  if (offset < table.dataOffsetBytes || offset > last) {
    const expected = `${table.dataOffsetBytes} to ${last}, so that its ${sizeBytes} bytes lie in the file`;
    throw refuseDescriptor(descriptorOffset, 'offset', 17, offset, expected);
  }
  return {
    id: descriptor.readUInt32LE(5),
    type: descriptor.readInt32LE(0),
    offsetBytes: Number(offset),
    sizeBytes,
    descriptorOffset,
    descriptor,
  };
}

function proveDisjoint(objects: readonly SifObject[]): void {
  const ordered = objects.filter((object) => object.sizeBytes > 0).sort((a, b) => a.offsetBytes - b.offsetBytes);
  let previous: SifObject | undefined;
  for (const object of ordered) {
    const end = previous === undefined ? 0 : previous.offsetBytes + previous.sizeBytes;
    if (previous !== undefined && object.offsetBytes < end) {
      const expected = `at least ${end}, where object ${previous.id} ends`;
      throw refuseDescriptor(object.descriptorOffset, 'offset', 17, object.offsetBytes, expected);
    }
    previous = object;
  }
}

/** About the field at `fieldOffset` in a descriptor. */
export function refuseDescriptor(
  descriptorOffset: number,
  field: string,
  fieldOffset: number,
  found: string | number | bigint,
  expected: string,
): Refusal {
  return invalid({
    code: 'sif-descriptor',
    field,
    offsetBytes: descriptorOffset + fieldOffset,
    found: String(found),
    expected,
  });
}
