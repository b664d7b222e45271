import test from 'ava';
import { execa } from 'execa';
import type { Diagnosis } from '../../src/cli/doctor.js';
import type { Finding } from '../../src/doctor/finding.js';
import { hasApptainer } from '../support/apptainer.js';
import { packagePath } from '../support/paths.js';
import { temporaryFolder } from '../support/temporary.js';

/** States of a machine that are made for real, in namespaces and processes of their own. */
const DOCTOR = `'${process.execPath}' '${packagePath('bin', 'tmaxfs.js')}' doctor --json --offline`;
const needsApptainer = hasApptainer ? test.serial : test.serial.skip;

/** Runs a script of the shell in a mount namespace of its own; `$DOCTOR` looks at what it has made. */
async function findings(
  script: string,
  words: readonly string[] = ['unshare', '--mount'],
): Promise<(check: string) => Finding | undefined> {
  const [file = '', ...args] = [...words, 'sh', '-euc', script];
  const { stdout, stderr } = await execa(file, args, { env: { DOCTOR, HF_TOKEN: '' }, reject: false, timeout: 60_000 });
  const start = stdout.indexOf('{\n');
  if (start < 0) throw new Error(`no diagnosis: ${stdout}${stderr}`);
  const { findings: all } = JSON.parse(stdout.slice(start)) as Diagnosis;
  return (check) => all.find((finding) => finding.check === check);
}

test.serial('user namespaces that are forbidden are found, and the remedy brings them back', async (t) => {
  const words = ['unshare', '--user', '--map-root-user'];
  const forbid = 'echo 0 > /proc/sys/user/max_user_namespaces';
  const forbidden = (await findings(`${forbid}; eval "$DOCTOR"`, words))('user-namespaces');
  t.is(forbidden?.level, 'warning');
  t.is(forbidden?.what, 'user.max_user_namespaces is 0');
  const [remedy = ''] = (forbidden?.remedy ?? '').split(' (as root');
  const mended = (await findings(`${forbid}; ${remedy} >&2; eval "$DOCTOR"`, words))('user-namespaces');
  t.is(mended?.level, 'ok', mended?.what);
});

test.serial('an ordinary user is told of a closed device, and its remedy opens it', async (t) => {
  const folder = temporaryFolder(t);
  await execa('chmod', ['755', folder]);
  const close = `rm -f ${folder}/fuse; mknod ${folder}/fuse c 10 229; chmod 600 ${folder}/fuse; mount --bind ${folder}/fuse /dev/fuse`;
  const asUser = 'setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/tmp sh -c "$DOCTOR"';
  const closed = (await findings(`${close}; ${asUser}`))('fuse-device');
  t.is(closed?.level, 'error');
  t.regex(closed?.what ?? '', /EACCES/);
  const [remedy = ''] = (closed?.remedy ?? '').split(' (as root');
  const open = await findings(`${close}; ${remedy}; ${asUser}`);
  t.is(open('fuse-device')?.level, 'ok');
  t.is(open('fusermount')?.level, 'ok', 'the real fusermount3 is set-uid root');
});

test.serial('no_new_privs, a root without CAP_SYS_ADMIN, and few descriptors are found as they are', async (t) => {
  const sandboxed = await findings(
    'setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs env HOME=/tmp sh -c "$DOCTOR"',
  );
  t.regex(sandboxed('fusermount')?.what ?? '', /no_new_privs/);
  const contained = await findings('setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin sh -c "$DOCTOR"');
  t.is(contained('fusermount')?.level, 'error');
  t.regex(contained('fusermount')?.what ?? '', /lacks CAP_SYS_ADMIN/);
  t.regex(contained('passthrough')?.what ?? '', /needs root|has no passthrough/);
  const few = await findings('ulimit -Sn 512; ulimit -Hn 1024; eval "$DOCTOR"');
  t.is(few('open-files')?.what, 'only 1024 files may be open');
});

needsApptainer('the real apptainer is found with its version and mode', async (t) => {
  const folder = temporaryFolder(t);
  const root = packagePath('test', 'support', 'apptainer-root');
  const script = `#!/bin/sh
if [ -e /usr/bin/apptainer ]; then exec /usr/bin/apptainer "$@"; fi
exec '${root}' exec '${folder}' apptainer "$@"`;
  const found = await findings(
    `cat > ${folder}/apptainer <<'END'\n${script}\nEND\nchmod +x ${folder}/apptainer; PATH=${folder}:$PATH; eval "$DOCTOR"`,
  );
  t.is(found('apptainer')?.level, 'ok');
  t.regex(found('apptainer')?.what ?? '', /^apptainer version \d+\.\d+\.\d+.*(?:set-uid|without set-uid)/);
});

test.serial('a variable that is no option is named by the command itself', async (t) => {
  const found = await findings('export TMAXFS_CACHEDIR=/x TMAXFS_CACHE_DIR=/tmp/none; eval "$DOCTOR"');
  t.regex(found('variables')?.what ?? '', /^TMAXFS_CACHEDIR is set/);
  const sound = await findings('export TMAXFS_CACHE_DIR=/tmp/none; eval "$DOCTOR"');
  t.is(sound('variables')?.level, 'ok');
});

test.serial('a cache in a folder that this user can’t enter is an error, and no crash', async (t) => {
  const folder = temporaryFolder(t);
  const words = `--cache-dir ${folder}/private/cache`;
  const script = `chmod 755 ${folder}; mkdir -m 700 ${folder}/private; mkdir ${folder}/private/cache`;
  const asUser = 'setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/tmp sh -c';
  const found = await findings(`${script}; ${asUser} "$DOCTOR ${words}"`);
  t.is(found('cache-disk')?.level, 'error');
  t.regex(found('cache-disk')?.what ?? '', /can't be written \(EACCES\)$/);
});
