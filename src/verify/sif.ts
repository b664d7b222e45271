/**
 * Depth 1: the SIF header and its objects, and where among them the root file system lies.
 *
 * Not refused, since apptainer writes or loads it: bytes behind the last object, descriptors out of offset order, any
 * data offset behind the descriptors, a data length of 0, an empty launch line, signatures, overlay partitions.
 * Format: github.com/apptainer/sif, pkg/sif (header and rawDescriptor); little-endian, packed.
 */

import type { ImageFile } from './image-file.js';
import { refuseForeignForm } from './legacy-forms.js';
import { finding, invalid, unsupported } from './refusal.js';
import { readObjects, refuseDescriptor, SIF_HEADER_BYTES, type SifObject } from './sif-objects.js';
import type { Finding } from './verdict.js';

/** A longer JSON object is not parsed; apptainer's inspect data has a few KB. */
const MAX_JSON_BYTES = 1 << 20;

const TYPE_PARTITION = 0x4004;
const TYPE_GENERIC_JSON = 0x4006;
const TYPE_OCI_ROOT_INDEX = 0x400a;
const FIRST_TYPE = 0x4001;
const LAST_TYPE = 0x400b;
const PRIMARY_SYSTEM = 2;
const SQUASHFS = 1;
/** File systems that apptainer puts into a primary partition besides squashfs, by their SIF number. */
const FOREIGN_FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [2, 'ext3'],
  [5, 'encrypted-squashfs'],
  [6, 'gocryptfs'],
]);

const ARCHITECTURES: ReadonlyMap<string, string> = new Map([
  ['00', 'unknown'],
  ['01', '386'],
  ['02', 'amd64'],
  ['03', 'arm'],
  ['04', 'arm64'],
  ['05', 'ppc64'],
  ['06', 'ppc64le'],
  ['07', 'mips'],
  ['08', 'mipsle'],
  ['09', 'mips64'],
  ['10', 'mips64le'],
  ['11', 's390x'],
  ['12', 'riscv64'],
  ['13', 'loong64'],
]);

/** The primary system partition: all of it lies in the file. */
export interface SifPartition {
  readonly offsetBytes: number;
  readonly sizeBytes: number;
}

export interface SifFacts {
  readonly partition: SifPartition;
  /** Go's name, as "amd64". */
  readonly architecture: string;
  readonly warnings: readonly Finding[];
}

/** Proves header and descriptors. Throws a `Refusal`; errors: EIO. */
export function proveSif(image: ImageFile): SifFacts {
  const header = readHeader(image);
  const objects = readObjects(image, header);
  const primary = primaryPartition(objects);
  const architecture = proveArchitecture(header, primary);
  proveFileSystem(image, primary);
  for (const object of objects) if (object.type === TYPE_GENERIC_JSON) proveJson(image, object);
  return {
    partition: { offsetBytes: primary.offsetBytes, sizeBytes: primary.sizeBytes },
    architecture,
    warnings: warningsOf(image, objects),
  };
}

function readHeader(image: ImageFile): Buffer {
  if (image.sizeBytes < SIF_HEADER_BYTES) {
    const head = image.read(0, Math.min(image.sizeBytes, 40)).toString('latin1');
    throw invalid({
      code: 'sif-too-short',
      offsetBytes: image.sizeBytes,
      found: `${image.sizeBytes} bytes`,
      expected: `at least ${SIF_HEADER_BYTES}`,
      message: `the file has ${image.sizeBytes} bytes (${JSON.stringify(head)}), a SIF header alone has ${SIF_HEADER_BYTES}`,
    });
  }
  const header = image.read(0, SIF_HEADER_BYTES);
  if (header.toString('latin1', 32, 42) !== 'SIF_MAGIC\0') throw refuseForeignForm(image);
  const version = header.toString('latin1', 42, 45);
  if (version !== '01\0') {
    throw invalid({
      code: 'sif-version',
      field: 'version',
      offsetBytes: 42,
      found: JSON.stringify(version),
      expected: '"01\\u0000"',
    });
  }
  return header;
}

function primaryPartition(objects: readonly SifObject[]): SifObject {
  const primaries = objects.filter(
    (object) => object.type === TYPE_PARTITION && object.descriptor.readInt32LE(205) === PRIMARY_SYSTEM,
  );
  const [primary, second] = primaries;
  if (primary === undefined) {
    const index = objects.find((object) => object.type === TYPE_OCI_ROOT_INDEX);
    if (index !== undefined) {
      throw unsupported({
        code: 'oci-sif',
        offsetBytes: index.descriptorOffset,
        message: 'the file is an OCI-SIF (layers, no root file system); build it with "apptainer build --sif"',
      });
    }
    throw invalid({
      code: 'sif-primary-partition',
      field: 'partition type',
      found: 'no object that is a primary system partition',
      expected: 'exactly one',
      message: `none of the SIF's ${objects.length} objects is a primary system partition`,
    });
  }
  if (second !== undefined) {
    throw invalid({
      code: 'sif-primary-partition',
      field: 'partition type',
      offsetBytes: second.descriptorOffset + 205,
      found: `${primaries.length} primary system partitions`,
      expected: 'exactly one',
    });
  }
  return primary;
}

function proveArchitecture(header: Buffer, primary: SifObject): string {
  const code = header.toString('latin1', 45, 47);
  const architecture = ARCHITECTURES.get(code);
  if (architecture === undefined || header[47] !== 0) {
    throw invalid({
      code: 'sif-architecture',
      field: 'arch',
      offsetBytes: 45,
      found: JSON.stringify(header.toString('latin1', 45, 48)),
      expected: 'a code from "00" to "13"',
    });
  }
  const partitionCode = primary.descriptor.toString('latin1', 209, 212);
  if (partitionCode !== `${code}\0`) {
    const expected = `${JSON.stringify(code)}, the header's`;
    throw refuseDescriptor(primary.descriptorOffset, 'arch', 209, JSON.stringify(partitionCode), expected);
  }
  return architecture;
}

function proveFileSystem(image: ImageFile, primary: SifObject): void {
  const fileSystem = primary.descriptor.readInt32LE(201);
  if (fileSystem === SQUASHFS) return;
  const form = FOREIGN_FILE_SYSTEMS.get(fileSystem);
  const isSquashfs = primary.sizeBytes >= 4 && image.read(primary.offsetBytes, 4).toString('latin1') === 'hsqs';
  if (form === undefined || isSquashfs) {
    const found = form === undefined ? fileSystem : `${fileSystem} (${form}), over the bytes of a squashfs`;
    throw refuseDescriptor(primary.descriptorOffset, 'file system type', 201, found, `${SQUASHFS} (squashfs)`);
  }
  throw unsupported({
    code: form,
    field: 'file system type',
    offsetBytes: primary.descriptorOffset + 201,
    found: `${fileSystem} (${form})`,
    expected: `${SQUASHFS} (squashfs)`,
    message: `the root file system is ${form}, not squashfs; rebuild the image without it ("apptainer build")`,
  });
}

function proveJson(image: ImageFile, object: SifObject): void {
  if (object.sizeBytes > MAX_JSON_BYTES) return;
  const text = image.read(object.offsetBytes, object.sizeBytes).toString('utf8');
  try {
    JSON.parse(text);
  } catch {
    throw invalid({
      code: 'sif-json',
      field: `object ${object.id}`,
      offsetBytes: object.offsetBytes,
      found: JSON.stringify(text.slice(0, 24)),
      expected: 'JSON, as its descriptor says',
    });
  }
}

function warningsOf(image: ImageFile, objects: readonly SifObject[]): Finding[] {
  const warnings: Finding[] = [];
  const end = objects.reduce((furthest, object) => Math.max(furthest, object.offsetBytes + object.sizeBytes), 0);
  if (end < image.sizeBytes) {
    const found = `${image.sizeBytes - end} bytes behind the last object`;
    warnings.push(finding({ code: 'sif-trailing-bytes', field: 'end of file', offsetBytes: end, found }));
  }
  for (const { type, descriptorOffset } of objects) {
    if (type >= FIRST_TYPE && type <= LAST_TYPE) continue;
    const found = `0x${(type >>> 0).toString(16)}`;
    const expected = `0x${FIRST_TYPE.toString(16)} to 0x${LAST_TYPE.toString(16)}`;
    warnings.push(finding({ code: 'sif-object-type', field: 'type', offsetBytes: descriptorOffset, found, expected }));
  }
  return warnings;
}
