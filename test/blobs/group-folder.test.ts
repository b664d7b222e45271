/** The directory of a cache that a group shares: who is let in, what is refused, and what is mended. Opened by processes of real users. */

import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import { ANNA, as, BERT, GROUP, groupFolder, openCache } from '../support/group.js';

const OTHER_GROUP = 20101;
/** That only hold folders. */
const STICKY = /^(blobs|proofs|catalog|locks)?$/;

/** Every folder of the cache, as it must be. */
function checkFolders(t: ExecutionContext, root: string): void {
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' });
  for (const name of ['', ...names]) {
    const stats = lstatSync(join(root, name));
    t.is(stats.gid, GROUP, name);
    if (stats.isDirectory()) t.is((stats.mode & 0o7777).toString(8), STICKY.test(name) ? '3770' : '2770', name);
  }
  for (const folder of ['blobs', 'proofs']) t.is(readdirSync(join(root, folder)).length, 256);
}

async function refused(
  t: ExecutionContext,
  root: string,
  words: RegExp,
  { wrapper = as(BERT), isShared = true }: { readonly wrapper?: readonly string[]; readonly isShared?: boolean } = {},
): Promise<void> {
  const { exitCode, stderr } = await openCache(wrapper, root, isShared);
  t.is(exitCode, 1, stderr);
  t.regex(stderr, words);
}

async function accepted(t: ExecutionContext, root: string, wrapper = as(BERT)): Promise<void> {
  const { exitCode, stderr } = await openCache(wrapper, root);
  t.is(exitCode, 0, stderr);
}

test('users who make one shared cache at one moment, with whatever umask, make it for all', async (t) => {
  const root = groupFolder(t);
  const wrappers = [as(ANNA, GROUP, '077'), as(BERT), as(ANNA), as(BERT, GROUP, '027')];
  const opened = await Promise.all(wrappers.map((wrapper) => openCache(wrapper, root)));
  for (const { exitCode, stderr } of opened) t.is(exitCode, 0, stderr);
  checkFolders(t, root);
});

test('everybody else may look into a shared cache where its directory says so', async (t) => {
  const root = groupFolder(t, 0o3775);
  await accepted(t, root);
  t.is(statSync(join(root, 'blobs', 'ab')).mode & 0o7777, 0o2775);
  t.is(statSync(join(root, 'CACHEDIR.TAG')).mode & 0o777, 0o644);
});

test('a user who is not of the group is told so, wherever the kernel refuses first', async (t) => {
  const root = groupFolder(t);
  const stranger = as(BERT, OTHER_GROUP);
  await refused(t, root, new RegExp(`is for members of group ${GROUP}, and this user \\(${BERT}\\) is none`), {
    wrapper: stranger,
  });
  chmodSync(dirname(root), 0o700);
  await refused(t, root, /can't be looked at \(EACCES\); let its group in/, { wrapper: stranger });
});

const FAULTS: readonly (readonly [string, number, RegExp])[] = [
  ['everybody can write into', 0o3777, /can be written by everybody, .* run chmod 3775 /],
  ['its group can’t write into', 0o3750, /does not let its group in to read and write .* run chmod 3770 /],
  ['has no set-gid bit', 0o1770, /no set-gid bit: .* run chmod 3770 /],
  ['has no sticky bit', 0o2770, /no sticky bit: .* run chmod 3770 /],
];

for (const [what, mode, words] of FAULTS) {
  test(`a shared cache directory that ${what} is refused, with the command that mends it; that one does`, async (t) => {
    const root = groupFolder(t, mode);
    await refused(t, root, words);
    const { stderr } = await openCache(as(BERT), root);
    await execa('sh', ['-c', /run (chmod .*)$/m.exec(stderr)?.[1] ?? 'false']);
    await accepted(t, root);
  });
}

test('a shared cache directory is not made: how an administrator makes it is said', async (t) => {
  const root = groupFolder(t);
  rmSync(root, { recursive: true });
  await refused(t, root, new RegExp(`is not there; make it for its group: install -d -m 3770 -g GROUP ${root}`));
  writeFileSync(root, '');
  await refused(t, root, /is not a directory; name one with --cache-dir/);
});

test('a member who does not ask for it is refused before anything is made, which would keep the others out', async (t) => {
  const root = groupFolder(t);
  await refused(t, root, /say so with --shared-cache/, { wrapper: as(ANNA), isShared: false });
  t.deepEqual(readdirSync(root), []);
  await accepted(t, root);
});

test('without being asked for, the cache of a group is refused, and the option named', async (t) => {
  const root = groupFolder(t);
  await accepted(t, root, as(ANNA));
  await refused(t, root, /belongs to user 0, .* say so with --shared-cache/, { isShared: false });
  chownSync(root, BERT, GROUP);
  await refused(t, root, /can be written by others, .* run chmod go-w .* say so with --shared-cache/, {
    isShared: false,
  });
});

const PLACES = ['partial', 'blobs', 'proofs/cd'];

for (const place of PLACES) {
  test(`${place} is refused where it is another group’s, lets everybody in, or is a link; its owner mends it`, async (t) => {
    const root = groupFolder(t);
    await accepted(t, root, as(ANNA));
    const path = join(root, place);
    chownSync(path, ANNA, OTHER_GROUP);
    await refused(
      t,
      root,
      new RegExp(
        `${path} belongs to group ${OTHER_GROUP}.*user ${ANNA}, or root, can run chgrp ${GROUP} ${path} && chmod`,
      ),
    );
    chownSync(path, ANNA, GROUP);
    chmodSync(path, 0o3777);
    await refused(t, root, new RegExp(`${path} can be written by everybody.*chmod [23]770 ${path}`));
    chmodSync(path, 0o750);
    await refused(t, root, new RegExp(`${path} does not let its group in`));
    await accepted(t, root, as(ANNA));
    checkFolders(t, root);
    await accepted(t, root);
    renameSync(path, `${root}-aside`);
    symlinkSync(`${root}-aside`, path);
    await refused(t, root, new RegExp(`${path} is not a directory, .* can run rm ${path}`));
  });
}

test('no member can put a link in the place of a folder that another has made, nor remove it', async (t) => {
  const root = groupFolder(t);
  await accepted(t, root, as(ANNA));
  const [file = '', ...args] = as(BERT);
  for (const place of ['blobs', 'blobs/ab', 'proofs/ab', 'partial', 'reservations', 'catalog']) {
    const path = join(root, place);
    for (const command of [
      ['mv', path, `${path}-aside`],
      ['rmdir', path],
    ]) {
      const { exitCode, stderr } = await execa(file, [...args, ...command], { reject: false, env: { LC_ALL: 'C' } });
      t.not(exitCode, 0, place);
      t.regex(stderr, /Operation not permitted/, place);
    }
    t.true(lstatSync(path).isDirectory());
  }
});

test('a link in the place of a lease file’s folder, put there before it was needed, is refused', async (t) => {
  const root = groupFolder(t);
  await accepted(t, root, as(ANNA));
  const elsewhere = join(dirname(root), 'elsewhere');
  mkdirSync(elsewhere);
  mkdirSync(join(root, 'locks'));
  chownSync(join(root, 'locks'), ANNA, GROUP);
  chmodSync(join(root, 'locks'), 0o3770);
  symlinkSync(elsewhere, join(root, 'locks', 'ab'));
  await refused(t, root, /locks\/ab is not a directory/);
});

test('a cache that was one user’s is the group’s once its directory is, and its owner asks for it', async (t) => {
  const root = groupFolder(t);
  chownSync(root, ANNA, ANNA);
  chmodSync(root, 0o755);
  t.is((await openCache(as(ANNA), root, false)).exitCode, 0);
  mkdirSync(join(root, 'blobs', 'ab'));
  chownSync(join(root, 'blobs', 'ab'), ANNA, ANNA);
  chownSync(root, ANNA, GROUP);
  chmodSync(root, 0o3770);
  await refused(t, root, new RegExp(`user ${ANNA}, or root, can run chgrp ${GROUP} `));
  await accepted(t, root, as(ANNA));
  await accepted(t, root);
  const { gid, mode } = statSync(join(root, 'blobs', 'ab'));
  t.deepEqual([gid, mode & 0o7777], [GROUP, 0o2770]);
});
