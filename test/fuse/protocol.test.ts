import test from 'ava';
import fc from 'fast-check';
import { TmaxError } from '../../src/errors.js';
import type { Attributes, DirectoryEntry } from '../../src/filesystem/contract.js';
import { UNKNOWN_INODE } from '../../src/fuse/protocol/constants.js';
import { listingReply } from '../../src/fuse/protocol/directory.js';
import { reserved, struct, u16, u32, u64 } from '../../src/fuse/protocol/layout.js';
import { entryReply } from '../../src/fuse/protocol/replies.js';
import { decodeName, decodeRequest } from '../../src/fuse/protocol/requests.js';
import * as structs from '../../src/fuse/protocol/structs.js';

/** sizeof() of each struct in the kernel's header. */
const SIZES = {
  InHeader: 40,
  OutHeader: 16,
  InitIn: 16,
  InitInExtension: 48,
  InitOut: 64,
  Attr: 88,
  EntryOut: 128,
  AttrOut: 104,
  SxTime: 16,
  OpenIn: 8,
  OpenOut: 16,
  ReleaseIn: 24,
  ReadIn: 40,
  Dirent: 24,
  StatfsOut: 80,
  GetxattrIn: 8,
  GetxattrOut: 8,
  AccessIn: 8,
  InterruptIn: 8,
  BackingMap: 16,
};

for (const [name, struct] of Object.entries(structs)) {
  test(`${name} is as long as the kernel's ${struct.name}`, (t) => {
    t.is(struct.size, new Map(Object.entries(SIZES)).get(name) ?? 0);
  });
}

test('fields lie where the kernel has them', (t) => {
  t.is(structs.InHeader.offsets.unique, 8);
  t.is(structs.InHeader.offsets.pid, 32);
  t.is(structs.EntryOut.offsets.attr, 40);
  t.is(structs.Attr.offsets.mode, 60);
  t.is(structs.Attr.offsets.blockSize, 80);
  t.is(structs.InitOut.offsets.maxPages, 28);
  t.is(structs.InitOut.offsets.maxStackDepth, 36);
  t.is(structs.OpenOut.offsets.backingId, 12);
  t.is(structs.ReadIn.offsets.size, 16);
});

const Example = struct('example', { small: u16, gap: reserved(2), medium: u32, large: u64 });

test('what is written is read back, whatever lies around it', (t) => {
  const values = fc.record({
    small: fc.nat({ max: 0xffff }),
    medium: fc.nat({ max: 0xffff_ffff }),
    large: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
  });
  fc.assert(
    fc.property(values, fc.nat({ max: 20 }), fc.nat({ max: 255 }), (written, offset, filler) => {
      const bytes = Buffer.alloc(offset + Example.size + 5, filler);
      Example.write(bytes, offset, written);
      const { small, medium, large } = Example.read(bytes, offset);
      const around = [...bytes.subarray(0, offset), ...bytes.subarray(offset + Example.size)];
      t.deepEqual([small, medium, large], [written.small, written.medium, written.large]);
      t.true(around.every((byte) => byte === filler));
    }),
  );
});

test('fields that are left out are zero, even in a used buffer', (t) => {
  const bytes = Buffer.alloc(Example.size, 0xff);
  Example.write(bytes, 0, { medium: 7 });
  t.deepEqual(Example.read(bytes, 0), { small: 0, gap: undefined, medium: 7, large: 0n });
});

test('a struct that is cut short is EINVAL and names the struct', (t) => {
  const error = t.throws(() => Example.read(Buffer.alloc(Example.size - 1), 0), { instanceOf: TmaxError });
  t.is(error.errno, 'EINVAL');
  t.true(error.message.includes('example'));
});

test('a message shorter than a header is none', (t) => {
  t.is(decodeRequest(Buffer.alloc(39)), undefined);
  t.not(decodeRequest(Buffer.alloc(40)), undefined);
});

test('a name of 255 bytes is read, a longer one is ENAMETOOLONG', (t) => {
  const read = (length: number): string => {
    const request = decodeRequest(Buffer.concat([Buffer.alloc(40), Buffer.from(`${'x'.repeat(length)}\0`)]));
    return request === undefined ? '' : decodeName(request);
  };
  t.is(read(255).length, 255);
  t.is(t.throws(() => read(256), { instanceOf: TmaxError }).errno, 'ENAMETOOLONG');
});

test('a file’s attributes are valid for longer than its name, a folder’s for as long', (t) => {
  const timeouts = { nameMs: 1500, fileMs: 60_000 };
  const read = (attributes: Attributes) =>
    structs.EntryOut.read(entryReply(1n, attributes, timeouts), structs.OutHeader.size);
  const file = read(attributesOf(5n, 10));
  t.deepEqual([file.entryValidSeconds, file.entryValidNs, file.attrValidSeconds], [1n, 500_000_000, 60n]);
  const folder = read({ ...attributesOf(5n, 10), kind: 'directory' });
  t.deepEqual([folder.entryValidSeconds, folder.attrValidSeconds, folder.attrValidNs], [1n, 1n, 500_000_000]);
});

function attributesOf(inode: bigint, sizeBytes: number): Attributes {
  return { inode, kind: 'file', mode: 0o555, sizeBytes, modifiedSeconds: 1000, linkCount: 1, uid: 1, gid: 2 };
}

interface Listed {
  readonly name: string;
  readonly inode: bigint;
  readonly type: number;
  /** The inode whose lookup the kernel counts; 0 for none, undefined without attributes. */
  readonly lookedUp: bigint | undefined;
}

/** Reads a listing as the kernel does: reply after reply until one is empty. */
function readListing(entries: readonly DirectoryEntry[], sizeBytes: number, plus: boolean): readonly Listed[] {
  const listed: Listed[] = [];
  let offset = 0n;
  for (;;) {
    const attributesFor = plus ? { timeouts: { nameMs: 1000, fileMs: 1000 } } : undefined;
    const reply = listingReply(1n, { inode: 1n, entries }, { offset, sizeBytes, attributesFor });
    if (reply.length > structs.OutHeader.size + sizeBytes) throw new Error('longer than asked for');
    if (reply.length === structs.OutHeader.size) return listed;
    for (let at = structs.OutHeader.size; at < reply.length; ) {
      const direntAt = plus ? at + structs.EntryOut.size : at;
      const dirent = structs.Dirent.read(reply, direntAt);
      const nameAt = direntAt + structs.Dirent.size;
      const name = reply.subarray(nameAt, nameAt + dirent.nameLength).toString();
      const lookedUp = plus ? structs.EntryOut.read(reply, at).nodeId : undefined;
      listed.push({ name, inode: dirent.inode, type: dirent.type, lookedUp });
      offset = dirent.nextOffset;
      at = Math.ceil((nameAt + dirent.nameLength) / 8) * 8;
    }
  }
}

test('a listing read in pieces of any size has every entry once, in order, and counts no lookup of "." and ".."', (t) => {
  const names = fc.uniqueArray(fc.string({ minLength: 1, maxLength: 40, unit: 'grapheme' }), { maxLength: 30 });
  fc.assert(
    fc.property(names, fc.integer({ min: 512, max: 4096 }), fc.boolean(), (given, sizeBytes, plus) => {
      const entries = given.map((name, index) => ({ name, attributes: attributesOf(BigInt(index + 10), index) }));
      const expected: readonly Listed[] = [
        { name: '.', inode: 1n, type: 4, lookedUp: plus ? 0n : undefined },
        { name: '..', inode: UNKNOWN_INODE, type: 4, lookedUp: plus ? 0n : undefined },
        ...entries.map(({ name, attributes: { inode } }) => ({
          name,
          inode,
          type: 8,
          lookedUp: plus ? inode : undefined,
        })),
      ];
      t.deepEqual(readListing(entries, sizeBytes, plus), expected);
    }),
    { numRuns: 300 },
  );
});
