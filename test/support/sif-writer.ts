/**
 * Writes SIF files for tests: the header, the descriptor table and the objects as apptainer lays them out, around a
 * squashfs that the caller brings, and whole small images from nothing (`tinyImage`). Deterministic.
 * Layout after github.com/apptainer/sif (pkg/sif): everything little-endian and packed.
 */

import { createCipheriv, createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { buildSquashfs, type SquashfsOptions } from './squashfs-writer.js';

export const SIF_DESCRIPTOR_TABLE_OFFSET = 4096;
export const SIF_DESCRIPTOR_BYTES = 585;
const DESCRIPTORS_TOTAL = 48;
const PARTITION_ALIGNMENT_BYTES = 4096;
const LAUNCH = '#!/usr/bin/env run-singularity\n';

const ARCHITECTURE_CODES: Readonly<Record<string, string>> = {
  '386': '01',
  amd64: '02',
  arm: '03',
  arm64: '04',
  ppc64: '05',
  ppc64le: '06',
  s390x: '11',
  riscv64: '12',
};

/** One object besides the root file system; `extra` is the type-specific part of its descriptor. */
export interface SifObject {
  readonly type: number;
  readonly content: Buffer;
  readonly name?: string;
  readonly extra?: Buffer;
  readonly alignmentBytes?: number;
}

export interface SifOptions {
  /** The root file system's bytes, or the path of a file with them. */
  readonly squashfs: Buffer | string;
  /** Go's name; default amd64. */
  readonly architecture?: string;
  /** File system type of the partition: 1 squashfs (default), 2 ext3, 5 encrypted squashfs, 6 gocryptfs, … */
  readonly fileSystem?: number;
  /** Partition type: 2 primary system (default), 1 system, 3 data, 4 overlay. */
  readonly partition?: number;
  /** Labels of the inspect JSON, by which images can also be told apart. */
  readonly labels?: Readonly<Record<string, string>>;
  /** Objects laid behind the partition. */
  readonly objects?: readonly SifObject[];
  readonly launch?: string;
}

/** The whole SIF. The partition starts at a multiple of 4096, as apptainer's does. */
export function buildSif(options: SifOptions): Buffer {
  const squashfs = typeof options.squashfs === 'string' ? readFileSync(options.squashfs) : options.squashfs;
  const architecture = options.architecture ?? 'amd64';
  const code = ARCHITECTURE_CODES[architecture];
  if (code === undefined) throw new Error(`no SIF code for architecture ${architecture}`);
  const inspect = { data: { attributes: { labels: { 'org.label-schema.schema-version': '1.0', ...options.labels } } } };
  const objects: SifObject[] = [
    { type: 0x4001, content: Buffer.from('bootstrap: scratch\n') },
    {
      type: 0x4006,
      content: Buffer.from(JSON.stringify({ ...inspect, type: 'container' })),
      name: 'inspect-metadata.json',
    },
    {
      type: 0x4004,
      content: squashfs,
      extra: partitionExtra(options.fileSystem ?? 1, options.partition ?? 2, code),
      alignmentBytes: PARTITION_ALIGNMENT_BYTES,
    },
    ...(options.objects ?? []),
  ];
  const head = Buffer.alloc(SIF_DESCRIPTOR_TABLE_OFFSET + DESCRIPTORS_TOTAL * SIF_DESCRIPTOR_BYTES);
  const parts: Buffer[] = [head];
  let end = head.length;
  objects.forEach((object, index) => {
    const alignment = object.alignmentBytes ?? 1;
    const gap = (alignment - (end % alignment)) % alignment;
    parts.push(Buffer.alloc(gap), object.content);
    const descriptor = head.subarray(SIF_DESCRIPTOR_TABLE_OFFSET + index * SIF_DESCRIPTOR_BYTES);
    descriptor.writeInt32LE(object.type, 0);
    descriptor.writeUInt8(1, 4);
    descriptor.writeUInt32LE(index + 1, 5);
    descriptor.writeUInt32LE(0xf000_0001, 9);
    descriptor.writeBigInt64LE(BigInt(end + gap), 17);
    descriptor.writeBigInt64LE(BigInt(object.content.length), 25);
    descriptor.writeBigInt64LE(BigInt(object.content.length + gap), 33);
    descriptor.write(object.name ?? '', 73, 128, 'utf8');
    object.extra?.copy(descriptor, 201);
    end += gap + object.content.length;
  });
  head.write(options.launch ?? LAUNCH, 0, 32, 'latin1');
  head.write('SIF_MAGIC\0', 32, 'latin1');
  head.write('01\0', 42, 'latin1');
  head.write(`${code}\0`, 45, 'latin1');
  createHash('sha256').update(squashfs).digest().copy(head, 48, 0, 16);
  head.writeBigInt64LE(BigInt(DESCRIPTORS_TOTAL - objects.length), 80);
  head.writeBigInt64LE(BigInt(DESCRIPTORS_TOTAL), 88);
  head.writeBigInt64LE(BigInt(SIF_DESCRIPTOR_TABLE_OFFSET), 96);
  head.writeBigInt64LE(BigInt(DESCRIPTORS_TOTAL * SIF_DESCRIPTOR_BYTES), 104);
  head.writeBigInt64LE(BigInt(head.length), 112);
  head.writeBigInt64LE(BigInt(end - head.length), 120);
  return Buffer.concat(parts);
}

/** Type-specific part of a partition's descriptor. */
export function partitionExtra(fileSystem: number, partition: number, architectureCode: string): Buffer {
  const extra = Buffer.alloc(11);
  extra.writeInt32LE(fileSystem, 0);
  extra.writeInt32LE(partition, 4);
  extra.write(`${architectureCode}\0`, 8, 'latin1');
  return extra;
}

/**
 * A distinct valid SIF for each seed, in about a millisecond: `/etc/seed` holds the seed, `/payload` `payloadBytes` of
 * incompressible data that follow from it (default 1000). About 37 KB + payload; passes every level of verification,
 * mounts, and `apptainer inspect` reads it.
 */
export function tinyImage(seed: number, payloadBytes = 1000, options: SquashfsOptions = {}): Buffer {
  const squashfs = buildSquashfs(
    {
      kind: 'directory',
      entries: {
        bin: { kind: 'directory', entries: { true: { kind: 'file', content: Buffer.from('#!/bin/sh\n') } } },
        etc: { kind: 'directory', entries: { seed: { kind: 'file', content: Buffer.from(`${seed}\n`), mode: 0o644 } } },
        payload: { kind: 'file', content: pseudorandomBytes(seed, payloadBytes), mode: 0o644 },
        sbin: { kind: 'symlink', target: 'bin' },
      },
    },
    options,
  );
  return buildSif({ squashfs, labels: { seed: String(seed) } });
}

/** Bytes that look random and follow from the seed alone. */
export function pseudorandomBytes(seed: number, lengthBytes: number): Buffer {
  const key = createHash('sha256').update(`tmaxfs test seed ${seed}`).digest();
  const cipher = createCipheriv('aes-256-ctr', key, Buffer.alloc(16));
  return cipher.update(Buffer.alloc(lengthBytes));
}

/** 64 hex digits, as the catalog names a blob. */
export function sha256Of(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
