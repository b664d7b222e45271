/** The session over an in-memory file system, fed with bytes: no kernel, no mount. */

import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import anyTest, { type ExecutionContext, type TestFn } from 'ava';
import fc from 'fast-check';
import { pino } from 'pino';
import { TmaxError } from '../../src/errors.js';
import { type OpenFile, ROOT_INODE } from '../../src/filesystem/contract.js';
import { Session } from '../../src/fuse/kernel/session.js';
import { InitFlag, Opcode, OpenFlag } from '../../src/fuse/protocol/constants.js';
import type { Negotiated } from '../../src/fuse/protocol/negotiation.js';
import {
  AttrOut,
  EntryOut,
  GetxattrIn,
  GetxattrOut,
  InHeader,
  InitIn,
  InitInExtension,
  InitOut,
  InterruptIn,
  OpenIn,
  OpenOut,
  OutHeader,
  ReadIn,
  ReleaseIn,
} from '../../src/fuse/protocol/structs.js';
import { MemoryFileSystem, STATE_ATTRIBUTE, STATE_VALUE } from '../support/memory-file-system.js';

const { EBUSY, EINTR, EINVAL, EIO, EISDIR, ENODATA, ENOENT, ENOSYS, ENOTCONN, EOPNOTSUPP, ERANGE, EROFS } =
  constants.errno;

interface Harness {
  readonly session: Session;
  readonly fileSystem: MemoryFileSystem;
  readonly replies: Buffer[];
  /** Outcomes of INIT. */
  readonly inits: (Negotiated | TmaxError)[];
  /** What the kernel does next: take replies or not, pass files through or not, callers that want to stop. */
  readonly kernel: { accepts: boolean; backs: boolean; file: string; stopping: Set<number> };
  readonly duplicates: Set<number>;
  readonly backingIds: Set<number>;
  readonly logged: string[];
  send(opcode: number, body?: Buffer, options?: { nodeId?: bigint; pid?: number }): bigint;
  /** The one reply to this request, taken out of `replies`. */
  replyTo(unique: bigint): { error: number; body: Buffer } | undefined;
  inode(path: string): bigint;
}

const test = anyTest as TestFn<{ directory: string }>;

test.before((t) => {
  t.context.directory = mkdtempSync(join(tmpdir(), 'tmaxfs-session-'));
  for (const name of ['one', 'two', 'small']) writeFileSync(join(t.context.directory, name), name);
});
test.after.always((t) => rmSync(t.context.directory, { recursive: true }));

function harness(t: ExecutionContext<{ directory: string }>): Harness {
  const source = (name: string): string => join(t.context.directory, name);
  const fileSystem = new MemoryFileSystem([
    { path: 'easy/one.sif', source: source('one') },
    { path: 'easy/two.sif', source: source('two') },
    { path: 'easy/slow.sif', source: source('small'), behaviour: 'waits' },
    { path: 'easy/broken.sif', source: source('small'), behaviour: 'fails' },
  ]);
  const replies: Buffer[] = [];
  const inits: (Negotiated | TmaxError)[] = [];
  const kernel = { accepts: true, backs: false, file: 'one', stopping: new Set<number>() };
  const duplicates = new Set<number>();
  const backingIds = new Set<number>();
  const logged: string[] = [];
  let lastBackingId = 0;
  let lastUnique = 0n;
  const session = new Session({
    fileSystem,
    send: (reply) => {
      if (kernel.accepts) replies.push(reply);
      return kernel.accepts;
    },
    descriptors: {
      duplicate: () => {
        const descriptor = openSync('/dev/null', 'r');
        duplicates.add(descriptor);
        return descriptor;
      },
      identity: () => kernel.file,
      close: (descriptor) => {
        duplicates.delete(descriptor);
        closeSync(descriptor);
      },
    },
    backing: {
      open: () => {
        if (!kernel.backs) return undefined;
        lastBackingId += 1;
        backingIds.add(lastBackingId);
        return lastBackingId;
      },
      close: (id) => void backingIds.delete(id),
    },
    passthrough: true,
    wantsToStop: (pid) => kernel.stopping.has(pid),
    onInit: (outcome) => void inits.push(outcome),
    log: pino({ level: 'trace' }, { write: (line: string) => void logged.push(line) }),
  });
  t.teardown(() => session.close());

  function send(
    opcode: number,
    body: Buffer = Buffer.alloc(0),
    options: { nodeId?: bigint; pid?: number } = {},
  ): bigint {
    lastUnique += 2n;
    const message = Buffer.alloc(InHeader.size + body.length);
    const { nodeId = ROOT_INODE, pid = 1 } = options;
    InHeader.write(message, 0, { length: message.length, opcode, unique: lastUnique, nodeId, pid });
    body.copy(message, InHeader.size);
    session.handle(message);
    return lastUnique;
  }

  function replyTo(unique: bigint): { error: number; body: Buffer } | undefined {
    const index = replies.findIndex((reply) => OutHeader.read(reply, 0).unique === unique);
    const [reply] = index < 0 ? [] : replies.splice(index, 1);
    if (reply === undefined) return undefined;
    const { error, length } = OutHeader.read(reply, 0);
    if (length !== reply.length) throw new Error('the length of a reply does not fit');
    return { error: 0 - error, body: reply.subarray(OutHeader.size) };
  }

  function inode(path: string): bigint {
    let parent = ROOT_INODE;
    for (const name of path.split('/')) parent = fileSystem.lookup(parent, name).inode;
    return parent;
  }

  return { session, fileSystem, replies, inits, kernel, duplicates, backingIds, logged, send, replyTo, inode };
}

function encoded<Values>(
  layout: { size: number; write(b: Buffer, at: number, values: Partial<Values>): void },
  values: Partial<Values>,
): Buffer {
  const bytes = Buffer.alloc(layout.size);
  layout.write(bytes, 0, values);
  return bytes;
}

function name(text: string): Buffer {
  return Buffer.from(`${text}\0`);
}

const O_RDONLY = encoded(OpenIn, { flags: 0 });

/** All flags that a kernel of that time offers, as far as they were invented. */
function initRequest(minor: number, flags: bigint, major = 7): Buffer {
  const base = encoded(InitIn, { major, minor, maxReadahead: 131_072, flags: Number(BigInt.asUintN(32, flags)) });
  if ((flags & InitFlag.INIT_EXT) === 0n) return base;
  return Buffer.concat([base, encoded(InitInExtension, { flags2: Number(flags >> 32n) })]);
}

const kernels = [
  { title: 'RHEL 8 (7.27, no MAX_PAGES)', minor: 27, flags: 0x3f_fffbn, pages: false, passthrough: false },
  { title: 'RHEL 8 (7.31)', minor: 31, flags: 0x3ff_fffbn, pages: true, passthrough: false },
  { title: 'RHEL 9 and Ubuntu 22.04 (7.34)', minor: 34, flags: 0x73ff_fffbn, pages: true, passthrough: false },
  { title: 'Ubuntu 24.04 (7.39)', minor: 39, flags: 0x1f_73ff_fffbn, pages: true, passthrough: false },
  { title: 'Linux 6.9 (7.40)', minor: 40, flags: 0xff_73ff_fffbn, pages: true, passthrough: true },
  { title: 'Linux 6.18 (7.45)', minor: 45, flags: 0x7ff_73ff_fffbn, pages: true, passthrough: true },
];

for (const { title, minor, flags, pages, passthrough } of kernels) {
  test(`INIT of ${title} is answered with what it offers, and no more`, (t) => {
    const { send, replyTo, inits } = harness(t);
    const reply = replyTo(send(Opcode.INIT, initRequest(minor, flags)));
    const answer = InitOut.read(reply?.body ?? Buffer.alloc(0), 0);
    const asked = BigInt(answer.flags) | (BigInt(answer.flags2) << 32n);
    t.is(answer.major, 7);
    t.is(answer.minor, Math.min(minor, 40));
    t.is(asked & ~flags, 0n);
    t.is((asked & InitFlag.MAX_PAGES) !== 0n, pages);
    t.is(answer.maxPages, 256);
    t.is((asked & InitFlag.PASSTHROUGH) !== 0n, passthrough);
    t.is(answer.maxStackDepth, passthrough ? 1 : 0);
    t.is(answer.maxReadahead, 131_072);
    t.deepEqual(inits, [{ minor: Math.min(minor, 40), passthrough }]);
  });
}

test('a kernel with a newer major version is asked to speak this one', (t) => {
  const { send, replyTo, inits } = harness(t);
  const reply = replyTo(send(Opcode.INIT, initRequest(0, 0n, 8)));
  t.is(InitOut.read(reply?.body ?? Buffer.alloc(0), 0).major, 7);
  t.deepEqual(inits, []);
  replyTo(send(Opcode.INIT, initRequest(45, 0n)));
  t.is(inits.length, 1);
});

test('a kernel that is too old is refused with the reason', (t) => {
  const { send, replyTo, inits } = harness(t);
  t.true((replyTo(send(Opcode.INIT, initRequest(8, 0n)))?.error ?? 0) > 0);
  const [outcome] = inits;
  t.true(outcome instanceof TmaxError && outcome.message.includes('7.8'));
});

test('LOOKUP answers with the inode, and ENOENT for what is not there', (t) => {
  const { send, replyTo, inode } = harness(t);
  const found = replyTo(send(Opcode.LOOKUP, name('one.sif'), { nodeId: inode('easy') }));
  const entry = EntryOut.read(found?.body ?? Buffer.alloc(0), 0);
  t.is(entry.nodeId, inode('easy/one.sif'));
  t.is(entry.attr.size, 3n);
  t.is(entry.attr.blocks, 1n);
  t.is(entry.entryValidSeconds, 60n);
  t.is(replyTo(send(Opcode.LOOKUP, name('none'), { nodeId: inode('easy') }))?.error, ENOENT);
  t.is(replyTo(send(Opcode.LOOKUP, Buffer.from([0xff, 0]), { nodeId: inode('easy') }))?.error, ENOENT);
});

test('LOOKUP of "." answers with the inode itself', (t) => {
  const { send, replyTo, inode } = harness(t);
  const reply = replyTo(send(Opcode.LOOKUP, name('.'), { nodeId: inode('easy/one.sif') }));
  t.is(EntryOut.read(reply?.body ?? Buffer.alloc(0), 0).nodeId, inode('easy/one.sif'));
});

test('an open of a ready file is answered before the call returns, and released with its handle', (t) => {
  const { session, send, replyTo, inode, fileSystem, duplicates } = harness(t);
  const reply = replyTo(send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/one.sif') }));
  const { handle, openFlags } = OpenOut.read(reply?.body ?? Buffer.alloc(0), 0);
  t.true(duplicates.has(Number(handle)));
  t.is(openFlags, 0);
  t.is(session.openHandleCount, 1);
  t.is(replyTo(send(Opcode.RELEASE, encoded(ReleaseIn, { handle })))?.error, 0);
  t.is(session.openHandleCount, 0);
  t.is(fileSystem.openDescriptors, 0);
  t.is(duplicates.size, 0);
});

test('a RELEASE of an unknown handle is no error', (t) => {
  const { send, replyTo } = harness(t);
  t.is(replyTo(send(Opcode.RELEASE, encoded(ReleaseIn, { handle: 99_999n })))?.error, 0);
});

test('all opens of one inode are passed through with one backing id, given back after the last', (t) => {
  const { send, replyTo, inode, kernel, backingIds, session } = harness(t);
  kernel.backs = true;
  const nodeId = inode('easy/one.sif');
  const opened = [1, 2, 3].map(() =>
    OpenOut.read(replyTo(send(Opcode.OPEN, O_RDONLY, { nodeId }))?.body ?? Buffer.alloc(0), 0),
  );
  t.deepEqual(
    opened.map(({ openFlags, backingId }) => [openFlags, backingId]),
    [1, 2, 3].map(() => [OpenFlag.PASSTHROUGH, 1]),
  );
  t.is(session.backingIdCount, 1);
  for (const { handle } of opened) {
    t.deepEqual([...backingIds], [1]);
    replyTo(send(Opcode.RELEASE, encoded(ReleaseIn, { handle })));
  }
  t.is(backingIds.size, 0);
  t.is(session.backingIdCount, 0);
});

test('relayed and passed through opens of one inode are never mixed', (t) => {
  const { send, replyTo, inode, kernel } = harness(t);
  const open = (path: string) =>
    OpenOut.read(replyTo(send(Opcode.OPEN, O_RDONLY, { nodeId: inode(path) }))?.body ?? Buffer.alloc(0), 0);
  t.is(open('easy/one.sif').openFlags, 0);
  kernel.backs = true;
  t.is(open('easy/one.sif').openFlags, OpenFlag.KEEP_CACHE);
  t.is(open('easy/two.sif').openFlags, OpenFlag.PASSTHROUGH);
  kernel.backs = false;
  t.is(open('easy/two.sif').openFlags, OpenFlag.PASSTHROUGH);
});

test('what the kernel has cached of a relayed file is kept over closes, and dropped where another file took its place', (t) => {
  const { send, replyTo, inode, kernel } = harness(t);
  const openAndClose = (path: string): number => {
    const reply = replyTo(send(Opcode.OPEN, O_RDONLY, { nodeId: inode(path) }));
    const { handle, openFlags } = OpenOut.read(reply?.body ?? Buffer.alloc(0), 0);
    send(Opcode.RELEASE, encoded(ReleaseIn, { handle }));
    return openFlags;
  };
  t.deepEqual([openAndClose('easy/one.sif'), openAndClose('easy/one.sif')], [0, OpenFlag.KEEP_CACHE]);
  kernel.file = 'another';
  t.deepEqual([openAndClose('easy/one.sif'), openAndClose('easy/one.sif')], [0, OpenFlag.KEEP_CACHE]);
});

test('an open that the kernel no longer wants is given back at once', (t) => {
  const { send, inode, kernel, fileSystem, session, duplicates } = harness(t);
  kernel.accepts = false;
  send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/one.sif') });
  t.is(session.openHandleCount, 0);
  t.is(fileSystem.openDescriptors, 0);
  t.is(duplicates.size, 0);
});

for (const [title, flags] of [
  ['O_WRONLY', 1],
  ['O_RDWR', 2],
  ['O_TRUNC', 0o1000],
  ['O_CREAT', 0o100],
] as const) {
  test(`an open with ${title} ends in EROFS and asks the file system nothing`, (t) => {
    const { send, replyTo, inode, fileSystem } = harness(t);
    t.is(replyTo(send(Opcode.OPEN, encoded(OpenIn, { flags }), { nodeId: inode('easy/one.sif') }))?.error, EROFS);
    t.deepEqual(fileSystem.events, []);
  });
}

test('an open of a directory and one that fails its proof end in their errno', (t) => {
  const { send, replyTo, inode } = harness(t);
  t.is(replyTo(send(Opcode.OPEN, O_RDONLY))?.error, EISDIR);
  t.is(replyTo(send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/broken.sif') }))?.error, constants.errno.EBADMSG);
});

test('an open that waits is answered when its file is ready', async (t) => {
  const { send, replyTo, inode, fileSystem, session } = harness(t);
  const unique = send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/slow.sif') });
  t.is(replyTo(unique), undefined);
  t.is(session.waitingOpenCount, 1);
  fileSystem.finish();
  await Promise.resolve();
  t.is(replyTo(unique)?.error, 0);
  t.is(session.waitingOpenCount, 0);
});

test('an interrupted open of a caller that dies ends in EINTR, and the file is not opened for it', async (t) => {
  const { send, replyTo, inode, kernel, fileSystem, session } = harness(t);
  const unique = send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/slow.sif'), pid: 77 });
  kernel.stopping.add(77);
  send(Opcode.INTERRUPT, encoded(InterruptIn, { unique }));
  t.is(replyTo(unique)?.error, EINTR);
  t.deepEqual(fileSystem.events, ['aborted']);
  fileSystem.finish();
  await Promise.resolve();
  t.is(session.openHandleCount, 0);
  t.is(replyTo(unique), undefined);
});

test('an interrupt that comes before its open counts', (t) => {
  const { send, replyTo, inode, kernel } = harness(t);
  kernel.stopping.add(77);
  const next = 4n;
  t.is(send(Opcode.INTERRUPT, encoded(InterruptIn, { unique: next })), 2n);
  t.is(send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/slow.sif'), pid: 77 }), next);
  t.is(replyTo(next)?.error, EINTR);
});

test('a file that gets ready after its caller has gone is closed', async (t) => {
  const { send, replyTo, fileSystem, session, kernel, inode } = harness(t);
  let ready: (file: OpenFile) => void = () => undefined;
  fileSystem.open = () =>
    new Promise((resolve) => {
      ready = resolve;
    });
  const unique = send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/one.sif'), pid: 77 });
  kernel.stopping.add(77);
  send(Opcode.INTERRUPT, encoded(InterruptIn, { unique }));
  t.is(replyTo(unique)?.error, EINTR);
  const closed = new Promise<void>((done) => ready({ descriptor: 0, close: done }));
  await closed;
  t.is(session.openHandleCount, 0);
});

test('taking the mount away ends every waiting open with ENOTCONN', (t) => {
  const { send, replyTo, inode, session } = harness(t);
  const uniques = [1, 2, 3].map(() => send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/slow.sif') }));
  session.abandonWaitingOpens();
  t.deepEqual(
    uniques.map((unique) => replyTo(unique)?.error),
    [ENOTCONN, ENOTCONN, ENOTCONN],
  );
});

test('the end of the connection gives all handles back', (t) => {
  const { send, inode, session, fileSystem, kernel, backingIds } = harness(t);
  kernel.backs = true;
  send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/one.sif') });
  send(Opcode.OPEN, O_RDONLY, { nodeId: inode('easy/two.sif') });
  send(Opcode.OPENDIR, O_RDONLY);
  session.close();
  t.is(session.openHandleCount, 0);
  t.is(session.openDirectoryCount, 0);
  t.is(fileSystem.openDescriptors, 0);
  t.is(backingIds.size, 0);
});

test('a directory is listed as it was when it was opened', (t) => {
  const { send, replyTo, inode, session } = harness(t);
  const opened = replyTo(send(Opcode.OPENDIR, O_RDONLY, { nodeId: inode('easy') }));
  const { handle, openFlags } = OpenOut.read(opened?.body ?? Buffer.alloc(0), 0);
  t.is(openFlags, OpenFlag.KEEP_CACHE | OpenFlag.CACHE_DIR);
  const listed = replyTo(send(Opcode.READDIRPLUS, encoded(ReadIn, { handle, offset: 0n, size: 4096 })));
  for (const entry of ['one.sif', 'two.sif', 'slow.sif', 'broken.sif']) t.true(listed?.body.includes(entry));
  t.is(replyTo(send(Opcode.READDIR, encoded(ReadIn, { handle, offset: 6n, size: 4096 })))?.body.length, 0);
  t.is(replyTo(send(Opcode.RELEASEDIR, encoded(ReleaseIn, { handle })))?.error, 0);
  t.is(session.openDirectoryCount, 0);
  t.is(
    replyTo(send(Opcode.READDIR, encoded(ReadIn, { handle, offset: 0n, size: 4096 })))?.error,
    constants.errno.EBADF,
  );
});

test('an extended attribute tells its size, refuses a small buffer, and comes whole', (t) => {
  const { send, replyTo, inode } = harness(t);
  const nodeId = inode('easy/one.sif');
  const ask = (size: number, attribute: string) =>
    replyTo(send(Opcode.GETXATTR, Buffer.concat([encoded(GetxattrIn, { size }), name(attribute)]), { nodeId }));
  t.is(GetxattrOut.read(ask(0, STATE_ATTRIBUTE)?.body ?? Buffer.alloc(0), 0).size, STATE_VALUE.length);
  t.is(ask(2, STATE_ATTRIBUTE)?.error, ERANGE);
  t.is(ask(100, STATE_ATTRIBUTE)?.body.toString(), STATE_VALUE);
  t.is(ask(100, 'user.none')?.error, ENODATA);
  t.is(ask(100, 'security.capability')?.error, EOPNOTSUPP);
  const names = replyTo(send(Opcode.LISTXATTR, encoded(GetxattrIn, { size: 100 }), { nodeId }));
  t.is(names?.body.toString(), `${STATE_ATTRIBUTE}\0user.tmaxfs.sha256\0`);
});

test('what writes ends in EROFS, what is unknown in ENOSYS, READLINK in EINVAL', (t) => {
  const { send, replyTo } = harness(t);
  for (const opcode of [Opcode.WRITE, Opcode.CREATE, Opcode.SETATTR, Opcode.SETXATTR, Opcode.UNLINK, Opcode.TMPFILE]) {
    t.is(replyTo(send(opcode))?.error, EROFS);
  }
  for (const opcode of [0, 777, 4096, Opcode.FLUSH, Opcode.LSEEK, Opcode.IOCTL])
    t.is(replyTo(send(opcode))?.error, ENOSYS);
  t.is(replyTo(send(Opcode.READLINK))?.error, EINVAL);
});

test('FORGET and INTERRUPT are not answered', (t) => {
  const { send, replies } = harness(t);
  send(Opcode.FORGET, Buffer.alloc(8));
  send(Opcode.BATCH_FORGET, Buffer.alloc(24));
  send(Opcode.INTERRUPT, encoded(InterruptIn, { unique: 12_345n }));
  t.deepEqual(replies, []);
});

test('an error that is not a TmaxError is answered with EIO and logged', (t) => {
  const { send, replyTo, fileSystem, logged } = harness(t);
  fileSystem.attributes = () => {
    throw new Error('a bug');
  };
  t.is(replyTo(send(Opcode.GETATTR))?.error, EIO);
  t.true(logged.some((line) => line.includes('a bug')));
  fileSystem.attributes = () => {
    throw new TmaxError('EBUSY', 'known');
  };
  t.is(replyTo(send(Opcode.GETATTR))?.error, EBUSY);
  t.false(logged.some((line) => line.includes('known')));
});

test('attributes are valid for as long as the file system says', (t) => {
  const { send, replyTo } = harness(t);
  t.is(AttrOut.read(replyTo(send(Opcode.GETATTR))?.body ?? Buffer.alloc(0), 0).attrValidSeconds, 60n);
});

test('any bytes whatever are answered once or dropped, and nothing stays open', (t) => {
  const opcode = fc.oneof(fc.constantFrom(...Object.values(Opcode)), fc.nat({ max: 0xffff_ffff }));
  const anyMessage = fc.uint8Array({ maxLength: 200 });
  const framed = fc
    .tuple(opcode, fc.bigInt({ min: 0n, max: 8n }), fc.uint8Array({ maxLength: 120 }))
    .map(([code, nodeId, body]) => {
      const message = Buffer.alloc(InHeader.size + body.length);
      InHeader.write(message, 0, { length: message.length, opcode: code, unique: 1n, nodeId, pid: 1 });
      message.set(body, InHeader.size);
      return message;
    });
  const { session, replies, fileSystem } = harness(t);
  fc.assert(
    fc.property(fc.oneof(anyMessage, framed, framed, framed), (bytes) => {
      replies.length = 0;
      session.handle(Buffer.from(bytes));
      if (replies.length > 1) return false;
      return replies.every((reply) => OutHeader.read(reply, 0).length === reply.length);
    }),
    { numRuns: 5000 },
  );
  session.close();
  t.is(fileSystem.openDescriptors, 0);
  t.is(session.openHandleCount, 0);
});
