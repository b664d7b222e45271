import test from 'ava';
import fc from 'fast-check';
import type { BlobState } from '../../src/blobs/blob-report.js';
import { TmaxError } from '../../src/errors.js';
import { type Attributes, ROOT_INODE } from '../../src/filesystem/contract.js';
import { PoolFileSystem } from '../../src/filesystem/pool-file-system.js';
import { buildTree } from '../../src/filesystem/tree.js';
import { taskMapCatalog } from '../support/catalogs.js';

const COMMIT = 'c'.repeat(40);
const PINNED = 'a'.repeat(64);
const DATE = new Date('2026-02-03T04:05:06.789Z');

function listed(path: string, digit: string, sizeBytes = 1000) {
  return { path, sizeBytes, sha256: digit.repeat(64) };
}

const LISTING = [
  listed('images/a.sif', 'a', 513),
  listed('images_b00/b.sif', 'b'),
  listed('derived/a__1.sif', 'd'),
  listed('unused.sif', 'e'),
];
const MAP = {
  original: { one: 'images/a.sif', two: 'images_b00/b.sif' },
  solvable: { uno: 'images/a.sif', due: 'derived/a__1.sif' },
};

function treeOf(taskMap: unknown = MAP, listing = LISTING, { commit = COMMIT, date = DATE } = {}) {
  const text = JSON.stringify(taskMap);
  const catalog = taskMapCatalog({ repository: 'o/p', commit, date, taskMap: text, listing });
  return buildTree([{ name: '', catalog }]);
}

function fileSystemOf(tree = treeOf(), states: Record<string, BlobState> = {}) {
  const opened: string[] = [];
  const fileSystem = new PoolFileSystem({
    tree,
    blobs: {
      open: (address) => {
        opened.push(address.sha256);
        return { descriptor: 7, release: () => opened.push('released') };
      },
      isPinned: (sha256) => sha256 === PINNED,
      state: (sha256) => states[sha256] ?? { state: 'absent', failure: undefined },
    },
    uid: 1000,
    gid: 100,
    timeouts: { nameMs: 1000, fileMs: 9000 },
    rootAttributes: new Map([['control', '/run/x.sock']]),
    space: () => ({ totalBytes: 8192, freeBytes: 4097 }),
  });
  const walk = (path: string): Attributes => {
    let attributes = fileSystem.attributes(ROOT_INODE);
    for (const name of path.split('/').filter(Boolean)) attributes = fileSystem.lookup(attributes.inode, name);
    return attributes;
  };
  return { fileSystem, walk, opened };
}

const names = (fileSystem: PoolFileSystem, inode: bigint) => fileSystem.list(inode).map(({ name }) => name);

test('the root shows each variant and the flat view of all plain images', (t) => {
  const { fileSystem, walk } = fileSystemOf();
  t.deepEqual(names(fileSystem, ROOT_INODE), ['original', 'solvable', 'pool']);
  t.deepEqual(names(fileSystem, walk('original').inode), ['one.sif', 'two.sif']);
  t.deepEqual(names(fileSystem, walk('pool').inode), ['a.sif', 'b.sif', 'unused.sif'], 'derived images are left out');
});

test('a file shows its true size, the commit’s date, and one inode with a link for each of its names', (t) => {
  const { walk } = fileSystemOf();
  const attributes = walk('original/one.sif');
  t.is(attributes.sizeBytes, 513);
  t.is(attributes.modifiedSeconds, Math.floor(DATE.getTime() / 1000));
  t.is(attributes.mode, 0o555);
  t.deepEqual([attributes.uid, attributes.gid], [1000, 100]);
  t.is(attributes.linkCount, 3, 'original/one, solvable/uno and pool/a.sif');
  t.is(walk('solvable/uno.sif').inode, attributes.inode);
  t.is(walk('pool/a.sif').inode, attributes.inode);
  t.not(walk('original/two.sif').inode, attributes.inode);
});

test('inode numbers come from the content’s hash: another catalog gives the same blob the same number', (t) => {
  const other = treeOf({ else: { where: 'moved/x.sif' } }, [listed('moved/x.sif', 'a', 513)]);
  t.is(fileSystemOf(other).walk('else/where.sif').inode, fileSystemOf().walk('original/one.sif').inode);
});

test('two blobs whose hashes begin alike get two inodes, and the root keeps its own', (t) => {
  const twin = (last: string) => `${'0'.repeat(15)}1${'0'.repeat(47)}${last}`;
  const listing = ['1', '2', '3'].map((last) => ({ path: `${last}.sif`, sizeBytes: 5, sha256: twin(last) }));
  const { walk } = fileSystemOf(treeOf({ v: { one: '1.sif', two: '2.sif', three: '3.sif' } }, listing));
  const inodes = ['one', 'two', 'three'].map((task) => walk(`v/${task}.sif`).inode);
  t.is(new Set([ROOT_INODE, ...inodes]).size, 4);
});

test('a variant called pool is shown, and the flat view is not', (t) => {
  const tree = treeOf({ pool: { one: 'images/a.sif' } });
  const { fileSystem, walk } = fileSystemOf(tree);
  t.deepEqual(names(fileSystem, walk('pool').inode), ['one.sif']);
  t.regex(tree.warnings.join(), /variant called "pool"/);
});

test('two images of one file name: the first is shown, the second is warned of', (t) => {
  const tree = treeOf({ v: { one: 'images/a.sif' } }, [listed('images/a.sif', 'a'), listed('more/a.sif', 'b')]);
  t.deepEqual(names(fileSystemOf(tree).fileSystem, fileSystemOf(tree).walk('pool').inode), ['a.sif']);
  t.regex(tree.warnings.join(), /pool\/a\.sif/);
});

test('looking opens nothing', (t) => {
  const { fileSystem, walk, opened } = fileSystemOf();
  const { inode } = walk('original/one.sif');
  fileSystem.extendedAttributeNames(inode);
  fileSystem.statistics();
  for (const view of fileSystem.list(ROOT_INODE)) fileSystem.list(view.attributes.inode);
  t.deepEqual(opened, []);
});

test('an open leases the blob, and a close gives it back', async (t) => {
  const { fileSystem, walk, opened } = fileSystemOf();
  const options = { caller: { uid: 0, gid: 0, pid: 1 }, signal: new AbortController().signal };
  const file = await fileSystem.open(walk('solvable/uno.sif').inode, options);
  t.is(file.descriptor, 7);
  file.close();
  t.deepEqual(opened, ['a'.repeat(64), 'released']);
});

for (const [what, act, errno] of [
  ['a name that is not there', (fs: PoolFileSystem) => fs.lookup(ROOT_INODE, 'nothing'), 'ENOENT'],
  ['a name that is in Object.prototype', (fs: PoolFileSystem) => fs.lookup(ROOT_INODE, 'toString'), 'ENOENT'],
  ['an inode of another tree', (fs: PoolFileSystem) => fs.attributes(123_456n), 'ESTALE'],
  ['an attribute nobody knows', (fs: PoolFileSystem) => fs.extendedAttribute(ROOT_INODE, 'user.mine'), 'ENODATA'],
  ['a security attribute', (fs: PoolFileSystem) => fs.extendedAttribute(ROOT_INODE, 'security.capability'), 'ENODATA'],
] as const) {
  test(`${what} is ${errno}`, (t) => {
    t.is(t.throws(() => act(fileSystemOf().fileSystem), { instanceOf: TmaxError })?.errno, errno);
  });
}

test('a file can’t be listed and a folder can’t be opened', (t) => {
  const { fileSystem, walk } = fileSystemOf();
  const file = walk('original/one.sif').inode;
  t.is(t.throws(() => fileSystem.list(file), { instanceOf: TmaxError })?.errno, 'ENOTDIR');
  t.is(t.throws(() => fileSystem.lookup(file, 'x'), { instanceOf: TmaxError })?.errno, 'ENOTDIR');
  const options = { caller: { uid: 0, gid: 0, pid: 1 }, signal: new AbortController().signal };
  t.is(t.throws(() => void fileSystem.open(ROOT_INODE, options), { instanceOf: TmaxError })?.errno, 'EISDIR');
});

test('extended attributes tell where a blob stands, and why it was refused', (t) => {
  const record = { reason: 'no superblock' } as Extract<BlobState, { state: 'quarantined' }>['record'];
  const { fileSystem, walk } = fileSystemOf(treeOf(), {
    ['a'.repeat(64)]: { state: 'ready', architecture: 'arm64', refusal: undefined },
    ['b'.repeat(64)]: { state: 'quarantined', record },
  });
  const read = (path: string, name: string) =>
    fileSystem.extendedAttribute(walk(path).inode, `user.tmaxfs.${name}`).toString();
  t.is(read('original/one.sif', 'state'), 'ready');
  t.is(read('original/one.sif', 'verified'), 'yes');
  t.is(read('original/one.sif', 'blob'), 'images/a.sif');
  t.is(read('original/two.sif', 'error'), 'no superblock');
  t.is(read('original/one.sif', 'pinned'), 'yes');
  t.is(read('original/two.sif', 'pinned'), 'no');
  t.is(read('', 'control'), '/run/x.sock');
  t.deepEqual(
    fileSystem.extendedAttributeNames(walk('solvable/due.sif').inode),
    ['blob', 'commit', 'pinned', 'repository', 'sha256', 'state', 'verified'].map((name) => `user.tmaxfs.${name}`),
  );
});

test('the words of a fetch that failed can be read from the file that was opened', (t) => {
  const { fileSystem, walk } = fileSystemOf(treeOf(), {
    ['a'.repeat(64)]: { state: 'absent', failure: 'EHOSTUNREACH: no' },
  });
  t.is(
    fileSystem.extendedAttribute(walk('original/one.sif').inode, 'user.tmaxfs.error').toString(),
    'EHOSTUNREACH: no',
  );
});

test('a commit from before 1970 is shown as from 1970: the kernel’s protocol has no earlier time', (t) => {
  const { fileSystem } = fileSystemOf(treeOf(MAP, LISTING, { date: new Date(-1e12) }));
  t.is(fileSystem.attributes(ROOT_INODE).modifiedSeconds, 0);
});

test('df is told whole blocks, and as many files as there are names', (t) => {
  const { fileSystem } = fileSystemOf();
  t.deepEqual(fileSystem.statistics(), {
    blockSizeBytes: 4096,
    totalBlocks: 2,
    freeBlocks: 1,
    files: 1 + 3 + 2 + 2 + 3,
  });
});

test('whatever the catalog, every listed name looks up to the attributes it was listed with', (t) => {
  const path = fc.constantFrom('images/a.sif', 'images_b00/b.sif', 'derived/a__1.sif', 'missing.sif');
  fc.assert(
    fc.property(fc.dictionary(fc.string({ minLength: 1 }), fc.dictionary(fc.string(), path)), (map) => {
      const { fileSystem } = fileSystemOf(treeOf({ ...map, always: { x: 'images/a.sif' } }));
      for (const view of fileSystem.list(ROOT_INODE)) {
        for (const entry of fileSystem.list(view.attributes.inode)) {
          t.deepEqual(fileSystem.lookup(view.attributes.inode, entry.name), entry.attributes);
        }
      }
    }),
  );
});

test('another view replaces names, sizes and counts as a whole', (t) => {
  const { fileSystem, walk } = fileSystemOf();
  const before = walk('original/one.sif');
  const next = { commit: 'd'.repeat(40), date: new Date('2026-03-04T05:06:07Z') };
  fileSystem.show(treeOf({ original: { one: 'images_b00/b.sif' }, fresh: { three: 'images/a.sif' } }, LISTING, next));
  t.deepEqual(names(fileSystem, ROOT_INODE), ['original', 'fresh', 'pool']);
  t.is(walk('fresh/three.sif').inode, before.inode, 'the same image keeps its number');
  t.not(walk('original/one.sif').inode, before.inode);
  t.is(walk('original').modifiedSeconds, Date.parse('2026-03-04T05:06:07Z') / 1000);
  t.is(String(fileSystem.extendedAttribute(ROOT_INODE, 'user.tmaxfs.commit')), 'd'.repeat(40));
  t.throws(() => walk('solvable'), { message: /no "solvable"/ });
});

test('a file that is open when its name goes is answered for until it is closed everywhere', (t) => {
  const { fileSystem, walk, opened } = fileSystemOf();
  const { inode, sizeBytes } = walk('original/one.sif');
  const options = { caller: { uid: 0, gid: 0, pid: 1 }, signal: new AbortController().signal };
  const files = [fileSystem.open(inode, options), fileSystem.open(inode, options)];
  const listing = [listed('images_b00/b.sif', 'b')];
  fileSystem.show(treeOf({ original: { two: 'images_b00/b.sif' } }, listing, { commit: 'd'.repeat(40) }));
  t.throws(() => walk('original/one.sif'), { message: /no "one.sif"/ });
  for (const file of files) {
    t.is(fileSystem.attributes(inode).sizeBytes, sizeBytes);
    t.is(String(fileSystem.extendedAttribute(inode, 'user.tmaxfs.commit')), COMMIT);
    if (!(file instanceof Promise)) file.close();
  }
  t.throws(() => fileSystem.attributes(inode), { message: /not in the pool/ });
  t.is(opened.filter((what) => what === 'released').length, 2);
});

function catalogOf(taskMap: unknown, listing = LISTING, date = DATE) {
  return taskMapCatalog({ repository: 'o/p', commit: COMMIT, date, taskMap: JSON.stringify(taskMap), listing });
}

test('each of several pools is a folder with its own commit and date; the root has the latest date and no commit', (t) => {
  const later = new Date('2026-04-05T06:07:08Z');
  const { fileSystem, walk } = fileSystemOf(
    buildTree([
      { name: 'one', catalog: catalogOf({ v: { a: 'images/a.sif' } }) },
      { name: 'two', catalog: catalogOf({ v: { same: 'images/a.sif', b: 'images_b00/b.sif' } }, LISTING, later) },
    ]),
  );
  t.deepEqual(names(fileSystem, ROOT_INODE), ['one', 'two']);
  t.deepEqual(names(fileSystem, walk('two').inode), ['v', 'pool']);
  t.is(walk('one/v/a.sif').inode, walk('two/v/same.sif').inode);
  t.is(walk('one/v/a.sif').linkCount, 4, 'with the two flat views');
  t.is(walk('one').modifiedSeconds, Math.floor(DATE.getTime() / 1000));
  t.is(walk('two/v').modifiedSeconds, later.getTime() / 1000);
  t.is(walk('').modifiedSeconds, later.getTime() / 1000);
  t.deepEqual([walk('').linkCount, walk('two').linkCount, walk('two/v').linkCount], [4, 4, 2]);
  t.deepEqual(fileSystem.extendedAttributeNames(ROOT_INODE), ['user.tmaxfs.control']);
  t.deepEqual(fileSystem.extendedAttributeNames(walk('two/v').inode), ['user.tmaxfs.commit', 'user.tmaxfs.repository']);
  const inodes = ['one', 'one/v', 'one/pool', 'two', 'two/v', 'two/pool'].map((path) => walk(path).inode);
  t.is(new Set(inodes).size, inodes.length);
});

test('folders nest as variants are called; of a file and a folder with one name the file is shown, with a warning', (t) => {
  const variant = (name: string, digit: string) => {
    const blob = { repository: 'o/p', commit: COMMIT, path: `${digit}.sif`, sha256: digit.repeat(64), sizeBytes: 1 };
    return [name, { name, tasks: new Map([['x', blob]]), unresolvable: new Map<string, string>() }] as const;
  };
  const variants = new Map([variant('a/b', '1'), variant('a', '2'), variant('a/x.sif/c', '3')]);
  const tree = buildTree([{ name: '', catalog: { ...catalogOf({ v: {} }), variants, images: new Map() } }]);
  const { fileSystem, walk } = fileSystemOf(tree);
  t.deepEqual(names(fileSystem, walk('a').inode), ['b', 'x.sif']);
  t.is(walk('a').linkCount, 3);
  t.is(walk('a/x.sif').kind, 'file');
  t.is(walk('a/b/x.sif').kind, 'file');
  t.deepEqual(tree.warnings, ['a/x.sif stands for a file and a folder; the file is shown']);
  t.is(tree.nameCount, 6, 'the root, a, a/b, two files, and the flat view');
});

test('where the folders of a pool have files of one name, the warnings of its flat view are few', (t) => {
  const images = Array.from({ length: 1000 }, (_one, index) => ({
    path: `t${index}/image.sif`,
    sizeBytes: 1,
    sha256: String(index % 500).padStart(64, '0'),
  }));
  const { warnings } = treeOf({ original: { one: 't0/image.sif' } }, images);
  t.is(warnings.length, 11);
  t.is(warnings[0], 'pool/image.sif stands for two images; the first is shown');
  t.is(warnings.at(-1), 'and so it is with 988 more names', 'those with the image that is shown count for nothing');
});
