/** What every form of locks has to keep to, and what lease files make of owners that are silent. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import { CacheLayout } from '../../src/blobs/cache-layout.js';
import { chooseLocks, presentLocks } from '../../src/blobs/choose-locks.js';
import { type FileLocks, KernelLocks, type LockMode } from '../../src/blobs/file-locks.js';
import { LeaseFiles } from '../../src/blobs/lease-files.js';
import { areLocal } from '../../src/blobs/local-locks.js';
import { STALE_MS } from '../../src/locks/heartbeat.js';
import { temporaryFolder } from '../support/temporary.js';

const forms: Record<string, (layout: CacheLayout) => FileLocks> = {
  'kernel locks': () => new KernelLocks(),
  'lease files': (layout) => new LeaseFiles(layout),
};

function newLayout(t: ExecutionContext): CacheLayout {
  const layout = new CacheLayout(temporaryFolder(t));
  for (const folder of [layout.partials, layout.reservations]) mkdirSync(folder);
  for (const file of ['a', 'b']) writeFileSync(join(layout.partials, file), '');
  return layout;
}

const steps = fc.array(
  fc.record({
    /** Of two processes, each with two descriptors of each file. */
    holder: fc.integer({ min: 0, max: 7 }),
    act: fc.constantFrom<LockMode | 'unlock'>('shared', 'exclusive', 'unlock'),
  }),
  { maxLength: 30 },
);

for (const [form, make] of Object.entries(forms)) {
  test(`${form}: many share, one excludes, whoever holds it and whatever it held before`, async (t) => {
    await fc.assert(
      fc.asyncProperty(steps, async (sequence) => {
        const layout = newLayout(t);
        const processes = [make(layout), make(layout)];
        const holders = Array.from({ length: 8 }, (_, number) => {
          const path = join(layout.partials, number % 2 === 0 ? 'a' : 'b');
          const locks = processes[number < 4 ? 0 : 1] ?? make(layout);
          return { path, locks, descriptor: openSync(path, 'r+'), mode: undefined as LockMode | undefined };
        });
        const close = (holder: (typeof holders)[number]) => {
          holder.locks.unlock(holder.descriptor);
          closeSync(holder.descriptor);
        };
        for (const { holder: number, act } of sequence) {
          const holder = holders[number];
          if (holder === undefined) continue;
          if (act === 'unlock') {
            close(holder);
            holder.descriptor = openSync(holder.path, 'r+');
            holder.mode = undefined;
            continue;
          }
          const others = holders.filter((other) => other !== holder && other.path === holder.path);
          const isFree = others.every(({ mode }) => mode === undefined || (mode === 'shared' && act === 'shared'));
          t.is(holder.locks.tryLock(holder.descriptor, holder.path, act), isFree);
          // A kernel may let go of the old lock where it can't give the new one (flock(2)): nobody relies on it.
          if (!isFree) {
            close(holder);
            holder.descriptor = openSync(holder.path, 'r+');
          }
          holder.mode = isFree ? act : undefined;
        }
        for (const holder of holders) close(holder);
      }),
      { numRuns: 60 },
    );
  });
}

/** A lock of the other, as a process leaves it that has no time to unlock. */
function leaseOfAnother(layout: CacheLayout, owner: object | undefined, silentMs: number): string {
  const other = new LeaseFiles(layout);
  const path = join(layout.partials, 'a');
  other.tryLock(-1, path, 'exclusive');
  const id = other.partialSuffix.slice(1);
  const file = join(layout.lockOwners, id);
  const self: unknown = JSON.parse(readFileSync(file, 'utf8'));
  writeFileSync(file, owner === undefined ? '' : JSON.stringify({ ...(self as object), ...owner }));
  const at = new Date(Date.now() - silentMs);
  utimesSync(file, at, at);
  return path;
}

const elsewhere = { bootId: 'of another machine', host: 'node7' };
const owners: [string, object | undefined, number, boolean][] = [
  ['has written lately, on another machine', elsewhere, STALE_MS / 2, true],
  ['is writing its file right now', undefined, 0, true],
  ['has been silent for long, on another machine', elsewhere, STALE_MS + 5000, false],
  ['was a process of this machine that has ended', { pid: 2 ** 22 + 1 }, 0, false],
  ['was a process of this machine whose number is another’s now', { startTicks: '1' }, 0, false],
  ['lives in another pid namespace, and has written lately', { pidNamespace: 'pid:[1]', pid: 2 ** 22 + 1 }, 0, true],
  ['lives on this machine, and is stopped', {}, STALE_MS + 5000, false],
];
for (const [what, owner, silentMs, isHeld] of owners) {
  test(`lease files: an owner that ${what} ${isHeld ? 'keeps' : 'has lost'} what it held`, (t) => {
    const layout = newLayout(t);
    const path = leaseOfAnother(layout, owner, silentMs);
    const locks = new LeaseFiles(layout);
    const descriptor = openSync(path, 'r');
    t.is(locks.tryLock(descriptor, path, 'shared'), !isHeld);
    locks.unlock(descriptor);
    t.is(locks.tryLock(descriptor, path, 'exclusive'), !isHeld);
    closeSync(descriptor);
  });
}

test('lease files: what dead owners left is removed', async (t) => {
  const layout = newLayout(t);
  leaseOfAnother(layout, elsewhere, STALE_MS + 5000);
  const locks = new LeaseFiles(layout);
  const descriptor = openSync(join(layout.partials, 'a'), 'r');
  t.true(locks.tryLock(descriptor, join(layout.partials, 'a'), 'exclusive'));
  locks.unlock(descriptor);
  closeSync(descriptor);
  while (readdirSync(layout.lockOwners).length > 1) await new Promise(setImmediate);
  const left = readdirSync(layout.locks, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  t.deepEqual(
    left.map(({ name }) => name),
    [locks.partialSuffix.slice(1)],
  );
});

test('the kernel’s locks are chosen where they work, and lease files where others use them already', (t) => {
  const layout = newLayout(t);
  t.true(chooseLocks(layout).isKernel);
  t.true(presentLocks(layout).isKernel);
  t.deepEqual(readdirSync(layout.reservations), []);
  mkdirSync(layout.lockOwners, { recursive: true });
  t.false(chooseLocks(layout).isKernel);
  t.false(presentLocks(layout).isKernel);
});

const mounts = [
  '22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw',
  '40 22 0:40 / /scratch rw - lustre 10.0.0.1@tcp:/scratch rw,flock,user_xattr',
  '41 22 0:41 / /fast rw - lustre 10.0.0.1@tcp:/fast rw,localflock,user_xattr',
  '42 22 0:42 / /home rw,relatime shared:9 - nfs server:/home rw,vers=3,nolock,local_lock=all,addr=10.0.0.2',
  '43 42 0:43 / /home/my\\040own rw - nfs4 server:/own rw,vers=4.2,local_lock=none,addr=10.0.0.2',
  '44 22 0:44 / /old rw - nfs server:/old rw,local_lock=posix',
  '45 44 0:45 / /old rw - nfs server:/new rw,local_lock=flock',
  '',
].join('\n');
const places: [string, boolean][] = [
  ['/var/cache', false],
  ['/scratch/cache', false],
  ['/fast', true],
  ['/fast/cache', true],
  ['/faster', false],
  ['/home/cache', true],
  ['/home/my own/cache', false],
  ['/old/cache', true],
];
for (const [path, isLocal] of places) {
  test(`locks at ${path} ${isLocal ? 'keep out nobody on another machine' : 'count everywhere'}`, (t) => {
    t.is(areLocal(mounts, path), isLocal);
  });
}

test('a lock is gone when it was given back, though a child process has a copy of its descriptor', async (t) => {
  const { partials } = newLayout(t);
  const path = join(partials, 'a');
  const locks = new KernelLocks();
  const descriptor = openSync(path, 'r+');
  t.true(locks.tryLock(descriptor, path, 'exclusive'));
  const child = spawn('cat', { stdio: ['pipe', 'ignore', 'ignore', descriptor] });
  await once(child, 'spawn');
  locks.unlock(descriptor);
  closeSync(descriptor);
  const other = openSync(path, 'r+');
  t.true(locks.tryLock(other, path, 'exclusive'));
  t.is(child.exitCode, null);
  child.stdin?.end();
  await once(child, 'exit');
  closeSync(other);
});
