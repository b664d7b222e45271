/** Lease files of a folder that others write to as well, and that fails. */

import {
  chmodSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { makeFolder } from '../../src/folders.js';
import { LeaseFolder } from '../../src/locks/lease-folder.js';
import { temporaryFolder } from '../support/temporary.js';

function folderOf(t: ExecutionContext): { readonly root: string; readonly leases: LeaseFolder } {
  const root = temporaryFolder(t);
  const leases = new LeaseFolder(root, makeFolder);
  t.teardown(() => leases.rest());
  return { root, leases };
}

/** A lease of the same subject and mode, of an owner that there is not. */
function ofNobody(file: string): string {
  const [key = '', mode = ''] = basename(file).split('.');
  return join(file, '..', `${key}.${mode}.0123456789abcdef.1`);
}

test('a folder that lies where another’s lease could lie keeps nobody out', (t) => {
  const { leases } = folderOf(t);
  const file = leases.tryTake('a', 'exclusive') ?? '';
  mkdirSync(join(ofNobody(file), 'something in it'), { recursive: true });
  leases.giveBack(file);
  t.false(leases.isTaken('a'));
  t.not(leases.tryTake('a', 'exclusive'), undefined);
});

test('where it can’t be seen who else holds a subject, nothing is left that would keep its own owner out', (t) => {
  const { root, leases } = folderOf(t);
  const first = leases.tryTake('a', 'exclusive') ?? '';
  const folder = join(first, '..');
  leases.giveBack(first);
  mkdirSync(ofNobody(first));
  const [owners, away] = [join(root, 'owners'), join(root, 'away')];
  renameSync(owners, away);
  symlinkSync('owners', owners);
  t.throws(() => leases.tryTake('a', 'exclusive'), { code: 'ELOOP' });
  t.deepEqual(readdirSync(folder), [basename(ofNobody(first))]);
});

test('owners can be read by other users, whatever the umask', async (t) => {
  const root = temporaryFolder(t);
  const module = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
  const script = `
    import { makeFolder } from ${module('../../src/folders.js')};
    import { LeaseFolder } from ${module('../../src/locks/lease-folder.js')};
    process.umask(0o077);
    new LeaseFolder(${JSON.stringify(root)}, makeFolder).tryTake('a', 'exclusive');
  `;
  await execa(process.execPath, ['--input-type=module', '--eval', script]);
  const [owner = ''] = readdirSync(join(root, 'owners'));
  t.is(statSync(join(root, 'owners', owner)).mode & 0o777, 0o644);
});

test('an owner whom the kernel hides from other users counts for as long as it lives', async (t) => {
  const { root, leases } = folderOf(t);
  t.not(leases.tryTake('a', 'exclusive'), undefined);
  for (const folder of ['', ...readdirSync(root)]) chmodSync(join(root, folder), 0o777);
  const module = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
  const script = `
    import { makeFolder } from ${module('../../src/folders.js')};
    import { LeaseFolder } from ${module('../../src/locks/lease-folder.js')};
    process.stdout.write(String(new LeaseFolder(${JSON.stringify(root)}, makeFolder).isTaken('a')));
  `;
  const program = [process.execPath, '--input-type=module', '--eval', script];
  const other = ['setpriv', '--reuid', '20002', '--regid', '20002', '--clear-groups', ...program];
  const hidden = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"';
  t.is((await execa('unshare', ['--mount', 'sh', '-c', hidden, 'sh', ...other])).stdout, 'true');
});

for (const [what, plant] of [
  ['a link', symlinkSync],
  ['a second name', linkSync],
] as const) {
  test(`an owner writes to no file that others have put in the place of its own as ${what}`, async (t) => {
    const { root, leases } = folderOf(t);
    t.not(leases.tryTake('a', 'exclusive'), undefined);
    const owner = join(root, 'owners', leases.owner);
    const file = join(root, 'somebody’s');
    writeFileSync(file, 'precious', { mode: 0o600 });
    const { ino } = lstatSync(file);
    rmSync(owner);
    plant(file, owner);
    const isUntouched = () => readFileSync(file, 'utf8') === 'precious';
    const isMadeAnew = () => {
      const stats = lstatSync(owner, { throwIfNoEntry: false });
      return stats?.isFile() === true && stats.ino !== ino && stats.size > 0;
    };
    // Until its next sign of life.
    while (isUntouched() && !isMadeAnew()) await delay(20);
    t.true(isUntouched());
    t.is(lstatSync(file).mode & 0o777, 0o600);
  });
}
