import { mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { realMountpoint } from '../../src/daemon/mountpoint.js';
import { MOUNT_TYPE, type Mount } from '../../src/fuse/mount-table.js';
import { temporaryFolder } from '../support/temporary.js';

function mountAt(mountpoint: string): Mount {
  return { id: 1, device: '0:1', mountpoint, type: MOUNT_TYPE, source: 'org/pool', superOptions: [] };
}

test('a mount point is found through links, from its parents, and where it does not exist', (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'tmax'));
  symlinkSync(join(folder, 'tmax'), join(folder, 'link'));
  symlinkSync('link', join(folder, 'link-to-link'));
  symlinkSync('.', join(folder, 'here'));
  for (const name of ['tmax', 'link', 'link-to-link', 'here/tmax', 'here/here/link']) {
    t.is(realMountpoint(join(folder, name), []), join(folder, 'tmax'));
  }
  t.is(realMountpoint(join(folder, 'here', 'absent'), []), join(folder, 'absent'));
  symlinkSync('loop', join(folder, 'loop'));
  t.is(realMountpoint(join(folder, 'loop'), []), join(folder, 'loop'));
});

test('what is on a mount is left alone, since its daemon may hang', (t) => {
  const folder = temporaryFolder(t);
  const mountpoint = join(folder, 'tmax');
  mkdirSync(mountpoint);
  // Would be followed if it were looked at.
  symlinkSync('/', join(mountpoint, 'v'));
  t.is(realMountpoint(join(mountpoint, 'v'), [mountAt(mountpoint)]), join(mountpoint, 'v'));
  symlinkSync(mountpoint, join(folder, 'link'));
  t.is(realMountpoint(join(folder, 'link'), [mountAt(mountpoint)]), mountpoint);
});

test('no mount point at all is wrong usage, not the working directory', (t) => {
  t.throws(() => realMountpoint(''), { message: /mount point is ""/ });
});
