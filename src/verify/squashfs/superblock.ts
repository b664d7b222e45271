/**
 * Depth 2, first half: the 96 bytes with which a squashfs 4.0 begins, and the compressor's options behind them.
 *
 * Positions in the image are relative to the partition's start; every offset that leaves this file is absolute in the
 * SIF. Format: linux/fs/squashfs/squashfs_fs.h; what the kernel refuses to mount: super.c and the decompressors there.
 */

import type { ImageFile } from '../image-file.js';
import { finding, invalid, type Refusal, unsupported } from '../refusal.js';
import type { SifPartition } from '../sif.js';
import type { Finding } from '../verdict.js';
import { type Compressor, proveCompressorOptions } from './compressor-options.js';

export const SUPERBLOCK_BYTES = 96;
const VERSION = '4.0';
const MIN_BLOCK_LOG = 12;
const MAX_BLOCK_LOG = 20;
const FLAG_COMPRESSOR_OPTIONS = 0x400;
/** What a table that is not there has as its start. */
const ABSENT = 0xffff_ffff_ffff_ffffn;
const SECTOR_BYTES = 512;

const COMPRESSORS: ReadonlyMap<number, Compressor> = new Map([
  [1, 'gzip'],
  [4, 'xz'],
  [5, 'lz4'],
  [6, 'zstd'],
]);
const UNSERVED_COMPRESSORS: ReadonlyMap<number, string> = new Map([
  [2, 'lzma'],
  [3, 'lzo'],
]);

export interface Superblock {
  /** Where the squashfs begins in the SIF. */
  readonly baseOffset: number;
  readonly inodeCount: number;
  readonly blockSizeBytes: number;
  readonly fragmentCount: number;
  readonly compressor: Compressor;
  readonly idCount: number;
  /** Block start relative to the inode table, and offset in the decompressed block. */
  readonly rootInode: { readonly block: number; readonly offset: number };
  /** Absolute, as all that follow: first byte that may belong to file data. */
  readonly dataStart: number;
  readonly inodeTableStart: number;
  readonly directoryTableStart: number;
  readonly fragmentTableStart: number | undefined;
  readonly exportTableStart: number | undefined;
  readonly idTableStart: number;
  readonly xattrTableStart: number | undefined;
  /** Where the image's used bytes end. */
  readonly end: number;
  readonly warnings: readonly Finding[];
}

/** Field offsets in the superblock, by the names of the kernel's header. */
const FIELDS = {
  inodes: 4,
  block_size: 12,
  fragments: 16,
  compression: 20,
  block_log: 22,
  flags: 24,
  no_ids: 26,
  s_major: 28,
  s_minor: 30,
  root_inode: 32,
  bytes_used: 40,
  id_table_start: 48,
  xattr_id_table_start: 56,
  inode_table_start: 64,
  directory_table_start: 72,
  fragment_table_start: 80,
  lookup_table_start: 88,
} as const;
type Field = keyof typeof FIELDS;

/** Proves the superblock on its own; the tables it points at: `readLayout`. Throws a `Refusal`; errors: EIO. */
export function proveSuperblock(image: ImageFile, partition: SifPartition): Superblock {
  return new SuperblockReader(image, partition).read();
}

class SuperblockReader {
  readonly #image: ImageFile;
  readonly #partition: SifPartition;
  readonly #base: number;
  readonly #bytes: Buffer;

  constructor(image: ImageFile, partition: SifPartition) {
    if (partition.sizeBytes < SUPERBLOCK_BYTES) {
      throw invalid({
        code: 'squashfs-superblock',
        field: 'partition size',
        offsetBytes: partition.offsetBytes,
        found: `${partition.sizeBytes} bytes`,
        expected: `at least the ${SUPERBLOCK_BYTES} of a superblock`,
      });
    }
    this.#image = image;
    this.#partition = partition;
    this.#base = partition.offsetBytes;
    this.#bytes = image.read(this.#base, SUPERBLOCK_BYTES);
  }

  read(): Superblock {
    this.#proveMagic();
    const compressor = this.#compressor();
    const blockSizeBytes = this.#blockSize();
    const usedBytes = this.#usedBytes();
    const inodeCount = this.#u32('inodes');
    if (inodeCount === 0) throw this.#refuse('inodes', 0, 'at least 1, the root directory');
    const idCount = this.#u16('no_ids');
    if (idCount === 0) throw this.#refuse('no_ids', 0, 'at least 1');
    const inodeTableStart = this.#table('inode_table_start', usedBytes);
    const directoryTableStart = this.#table('directory_table_start', usedBytes);
    if (inodeTableStart >= directoryTableStart) {
      const expected = `less than the directory table's ${directoryTableStart - this.#base}`;
      throw this.#refuse('inode_table_start', inodeTableStart - this.#base, expected);
    }
    const dataStart = this.#dataStart(compressor);
    if (dataStart > inodeTableStart) {
      const expected = `at least ${dataStart - this.#base}, behind superblock and compressor options`;
      throw this.#refuse('inode_table_start', inodeTableStart - this.#base, expected);
    }
    return {
      baseOffset: this.#base,
      inodeCount,
      blockSizeBytes,
      fragmentCount: this.#u32('fragments'),
      compressor,
      idCount,
      rootInode: this.#rootInode(directoryTableStart - inodeTableStart),
      dataStart,
      inodeTableStart,
      directoryTableStart,
      fragmentTableStart: this.#optionalTable('fragment_table_start', usedBytes),
      exportTableStart: this.#optionalTable('lookup_table_start', usedBytes),
      idTableStart: this.#table('id_table_start', usedBytes),
      xattrTableStart: this.#optionalTable('xattr_id_table_start', usedBytes),
      end: this.#base + usedBytes,
      warnings: this.#warnings(usedBytes),
    };
  }

  #proveMagic(): void {
    const magic = this.#bytes.toString('latin1', 0, 4);
    if (magic !== 'hsqs') {
      throw invalid({
        code: 'squashfs-superblock',
        field: 's_magic',
        offsetBytes: this.#base,
        found: JSON.stringify(magic),
        expected: '"hsqs"',
      });
    }
    const version = `${this.#u16('s_major')}.${this.#u16('s_minor')}`;
    if (version !== VERSION) throw this.#refuse('s_major', version, VERSION);
  }

  #compressor(): Compressor {
    const number = this.#u16('compression');
    const unserved = UNSERVED_COMPRESSORS.get(number);
    if (unserved !== undefined) {
      throw unsupported({
        code: 'squashfs-compressor',
        field: 'compression',
        offsetBytes: this.#base + FIELDS.compression,
        found: `${number} (${unserved})`,
        expected: 'gzip, xz, lz4 or zstd',
        message: `the root file system is compressed with ${unserved}, which can't be proven here; rebuild the image with gzip or zstd`,
      });
    }
    const compressor = COMPRESSORS.get(number);
    if (compressor === undefined) {
      throw this.#refuse('compression', number, '1 (gzip), 4 (xz), 5 (lz4) or 6 (zstd)');
    }
    return compressor;
  }

  #blockSize(): number {
    const log = this.#u16('block_log');
    if (log < MIN_BLOCK_LOG || log > MAX_BLOCK_LOG) {
      throw this.#refuse('block_log', log, `${MIN_BLOCK_LOG} to ${MAX_BLOCK_LOG}`);
    }
    const size = this.#u32('block_size');
    if (size !== 1 << log) throw this.#refuse('block_size', size, `${1 << log}, two to the power of block_log ${log}`);
    return size;
  }

  #usedBytes(): number {
    const used = this.#u64('bytes_used');
    const size = this.#partition.sizeBytes;
    if (used <= SUPERBLOCK_BYTES || used > size) {
      throw this.#refuse('bytes_used', used, `${SUPERBLOCK_BYTES + 1} to the partition's ${size}`);
    }
    return Number(used);
  }

  #rootInode(tableBytes: number): Superblock['rootInode'] {
    const reference = this.#u64('root_inode');
    const block = reference >> 16n;
    const offset = Number(reference & 0xffffn);
    if (block >= BigInt(tableBytes) || offset >= 8192) {
      const expected = `a block below ${tableBytes} and an offset below 8192`;
      throw this.#refuse('root_inode', `block ${block}, offset ${offset}`, expected);
    }
    return { block: Number(block), offset };
  }

  #dataStart(compressor: Compressor): number {
    const start = this.#base + SUPERBLOCK_BYTES;
    if ((this.#u16('flags') & FLAG_COMPRESSOR_OPTIONS) !== 0) {
      return start + proveCompressorOptions(this.#image, start, this.#base + this.#partition.sizeBytes, compressor);
    }
    if (compressor === 'lz4') throw this.#refuse('flags', 'no compressor options', 'those that lz4 must have');
    return start;
  }

  #warnings(usedBytes: number): Finding[] {
    const loopBytes = this.#partition.sizeBytes - (this.#partition.sizeBytes % SECTOR_BYTES);
    if (usedBytes <= loopBytes) return [];
    return [
      finding({
        code: 'squashfs-loop-truncation',
        field: 'bytes_used',
        offsetBytes: this.#base + FIELDS.bytes_used,
        found: String(usedBytes),
        expected: `at most ${loopBytes}`,
        message:
          `the squashfs is not padded: a loop device shows ${loopBytes} of its ${usedBytes} bytes, ` +
          'so it runs through squashfuse (as an ordinary user) and not through the kernel (as root)',
      }),
    ];
  }

  #table(field: Field, usedBytes: number): number {
    const start = this.#u64(field);
    if (start < SUPERBLOCK_BYTES || start >= usedBytes) {
      throw this.#refuse(field, start, `${SUPERBLOCK_BYTES} to ${usedBytes - 1}`);
    }
    return this.#base + Number(start);
  }

  #optionalTable(field: Field, usedBytes: number): number | undefined {
    return this.#u64(field) === ABSENT ? undefined : this.#table(field, usedBytes);
  }

  #u16(field: Field): number {
    return this.#bytes.readUInt16LE(FIELDS[field]);
  }

  #u32(field: Field): number {
    return this.#bytes.readUInt32LE(FIELDS[field]);
  }

  #u64(field: Field): bigint {
    return this.#bytes.readBigUInt64LE(FIELDS[field]);
  }

  #refuse(field: Field, found: string | number | bigint, expected: string): Refusal {
    const offsetBytes = this.#base + FIELDS[field];
    return invalid({ code: 'squashfs-superblock', field, offsetBytes, found: String(found), expected });
  }
}
