import test from 'ava';
import fc from 'fast-check';
import { parseMountInfo, readMounts, tmaxfsMounts, topMountAt } from '../../src/fuse/mount-table.js';

const TEXT = [
  '24 30 0:22 / /proc rw,relatime shared:13 master:1 - proc proc rw',
  '97 30 0:58 / /mnt/tmax ro,nosuid,nodev - fuse.tmaxfs wAI-org/tmax-image-pool ro,user_id=0,group_id=0',
  '98 30 0:59 / /mnt/with\\040space\\011tab\\134slash ro - fuse.tmaxfs pool\\040two ro,user_id=1000',
  '99 30 0:60 / /mnt/tmax ro - tmpfs tmpfs rw',
  '',
].join('\n');

test('a mount table is read field by field, optional tags or not', (t) => {
  const [proc, ours] = parseMountInfo(TEXT);
  t.is(proc?.type, 'proc');
  t.deepEqual(ours, {
    id: 97,
    device: '0:58',
    mountpoint: '/mnt/tmax',
    type: 'fuse.tmaxfs',
    source: 'wAI-org/tmax-image-pool',
    superOptions: ['ro', 'user_id=0', 'group_id=0'],
  });
});

test('octal escapes in paths and sources are undone', (t) => {
  const mount = parseMountInfo(TEXT)[2];
  t.is(mount?.mountpoint, '/mnt/with space\ttab\\slash');
  t.is(mount?.source, 'pool two');
});

test('of two mounts on one path the later one counts', (t) => {
  t.is(topMountAt('/mnt/tmax', parseMountInfo(TEXT))?.type, 'tmpfs');
  t.is(topMountAt('/mnt', parseMountInfo(TEXT)), undefined);
});

test('only mounts of tmaxfs are listed as such', (t) => {
  t.deepEqual(
    tmaxfsMounts(parseMountInfo(TEXT)).map(({ id }) => id),
    [97, 98],
  );
});

test('any mount point comes back as it was', (t) => {
  const escaped = (path: string): string =>
    path.replace(/[ \t\n\\]/g, (character) => `\\${character.charCodeAt(0).toString(8).padStart(3, '0')}`);
  fc.assert(
    fc.property(
      fc.string({ minLength: 1, unit: 'grapheme' }).map((name) => `/${name}`),
      (path) => {
        const text = `1 2 0:3 / ${escaped(path)} ro - fuse.tmaxfs x ro\n`;
        t.is(parseMountInfo(text)[0]?.mountpoint, path);
      },
    ),
  );
});

test('lines that are no mounts are left out, whatever they are', (t) => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      for (const { device } of parseMountInfo(text.replaceAll(' - ', ' '))) t.fail(device);
    }),
  );
  t.deepEqual(parseMountInfo('1 2 0:3 / /mnt ro -\nfoo\n'), []);
});

test('the mount table of this machine has a root', (t) => {
  t.not(topMountAt('/', readMounts()), undefined);
});
