import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { BlobStore } from '../../src/blobs/blob-store.js';
import {
  cacheDisk,
  fileSystemOf,
  remarksOn,
  temporaryFolder as temporaryFolderCheck,
} from '../../src/doctor/checks/cache-disk.js';
import type { CacheTrial } from '../../src/doctor/disk-trial.js';
import { parseMountInfo } from '../../src/fuse/mount-table.js';
import { machine } from '../support/machine.js';
import { temporaryFolder } from '../support/temporary.js';

async function tmpfs(t: ExecutionContext, options: string): Promise<string> {
  const folder = temporaryFolder(t);
  await execa('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', folder]);
  t.teardown(() => execa('umount', [folder]));
  return folder;
}

test('a folder that is not there yet is tried above it, and nothing is left behind', async (t) => {
  const folder = temporaryFolder(t);
  const remarks = await cacheDisk(machine(t, { words: { cacheDir: join(folder, 'a', 'b') } }));
  t.true(
    remarks.every(({ level }) => level === 'ok'),
    JSON.stringify(remarks),
  );
  t.regex(JSON.stringify(remarks), /flock/);
  t.deepEqual(readdirSync(folder), []);
});

test('a cache that is there already is tried, and left as it is', async (t) => {
  const cacheDir = join(temporaryFolder(t), 'cache');
  const store = await BlobStore.open(cacheDir);
  const before = readdirSync(cacheDir);
  t.true((await cacheDisk(machine(t, { words: { cacheDir } }))).every(({ level }) => level === 'ok'));
  t.deepEqual(readdirSync(cacheDir), before);
  t.true(existsSync(store.layout.blobs));
});

test('a folder of other things is an error, as mount would refuse it', async (t) => {
  const cacheDir = temporaryFolder(t);
  writeFileSync(join(cacheDir, 'thesis.tex'), '');
  const [remark] = await cacheDisk(machine(t, { words: { cacheDir } }));
  t.is(remark?.level, 'error');
  t.regex(remark?.what ?? '', /holds other things/);
});

test('a cache in memory is a warning; so is a limit that its disk can never hold', async (t) => {
  const cacheDir = await tmpfs(t, 'size=8m');
  const remarks = await cacheDisk(machine(t, { words: { cacheDir, cacheSize: '200G' } }));
  t.deepEqual(
    remarks.map(({ level }) => level),
    ['warning', 'warning', 'ok'],
  );
  t.regex(remarks[0]?.what ?? '', /can't grow to its limit of 200 GiB/);
  t.regex(remarks[0]?.remedy ?? '', /--cache-size [78]M/);
  t.regex(remarks[1]?.what ?? '', /in memory \(tmpfs/);
});

test('a disk that is full, has no inodes, or can’t be written is an error', async (t) => {
  const full = await tmpfs(t, 'size=1m');
  mkdirSync(join(full, 'cache'));
  await execa('dd', ['if=/dev/zero', `of=${full}/filler`, 'bs=64k'], { reject: false });
  const [noRoom] = await cacheDisk(machine(t, { words: { cacheDir: join(full, 'cache') } }));
  t.is(noRoom?.level, 'error');
  t.regex(noRoom?.what ?? '', /is full \(ENOSPC\)/);
  const fewInodes = await tmpfs(t, 'size=8m,nr_inodes=100');
  const [, inodes] = await cacheDisk(machine(t, { words: { cacheDir: fewInodes } }));
  t.regex(inodes?.what ?? '', /only \d+ inodes left/);
  const readOnly = await tmpfs(t, 'size=8m,ro');
  const [unwritable] = await cacheDisk(machine(t, { words: { cacheDir: join(readOnly, 'cache') } }));
  t.regex(unwritable?.what ?? '', /can't be made: .* can't be written \(EROFS\)/);
});

test('the reserve counts: a disk that holds no more than it is an error', async (t) => {
  const cacheDir = await tmpfs(t, 'size=8m');
  const [remark] = await cacheDisk(machine(t, { words: { cacheDir, reserveFree: '100%' } }));
  t.is(remark?.level, 'error');
  t.regex(remark?.why ?? '', /ENOSPC/);
});

const TRIAL: CacheTrial = {
  folder: '/scratch/cache',
  exists: true,
  isForeign: false,
  refusal: null,
  groupId: null,
  totalBytes: 2 ** 40,
  availableBytes: 2 ** 39,
  cachedBytes: 0,
  availableFiles: null,
  writeError: null,
  writeMs: 1,
  locksExclude: true,
  lockError: null,
};

test('network disks are warned of, and locks that do not hold are an error with the way of that disk', (t) => {
  const [lustre, nfs] = parseMountInfo(
    '30 1 0:30 / /scratch rw - lustre mgs@tcp:/scratch rw\n31 1 0:31 / /scratch/cache rw - nfs4 server:/x rw\n',
  );
  if (lustre === undefined || nfs === undefined) return t.fail('two mounts were written');
  const here = machine(t, { words: { cacheDir: '/scratch/cache' } });
  t.deepEqual(
    remarksOn(here, TRIAL, nfs).map(({ level }) => level),
    ['ok', 'warning', 'ok'],
  );
  const [, , noLocks] = remarksOn(here, { ...TRIAL, locksExclude: null, lockError: 'ENOSYS' }, lustre);
  t.is(noLocks?.level, 'error');
  t.regex(noLocks?.what ?? '', /flock.*lustre, ENOSYS/);
  t.regex(noLocks?.remedy ?? '', /-o flock/);
  t.is(remarksOn(here, { ...TRIAL, locksExclude: false }, nfs)[2]?.level, 'error', 'a lock that two hold is none');
  t.is(fileSystemOf('/scratch/cache/blobs', [lustre, nfs]), nfs);
  t.is(fileSystemOf('/scratch/cache2', [lustre, nfs]), lustre);
});

test('a slow disk is a warning', (t) => {
  const [disk] = parseMountInfo('30 1 8:1 / / rw - ext4 /dev/sda1 rw\n');
  if (disk === undefined) return t.fail('a mount was written');
  const remarks = remarksOn(machine(t), { ...TRIAL, writeMs: 5_000 }, disk);
  t.regex(remarks[1]?.what ?? '', /took 5000 ms/);
});

test('a temporary folder in memory is a note', async (t) => {
  const folder = await tmpfs(t, 'size=1m');
  const [remark] = await temporaryFolderCheck(machine(t, { environment: { APPTAINER_TMPDIR: folder } }));
  t.is(remark?.level, 'note');
  t.is((await temporaryFolderCheck(machine(t, { environment: { TMPDIR: '/usr' } })))[0]?.level, 'ok');
});
