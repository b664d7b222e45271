import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import test from 'ava';
import { execa } from 'execa';
import { apptainer } from '../../src/doctor/checks/apptainer.js';
import { allowOther, fuseDevice, fusermount, updatedb } from '../../src/doctor/checks/fuse.js';
import { passthrough, userNamespaces } from '../../src/doctor/checks/kernel.js';
import { node, openFiles, runtimeFolder } from '../../src/doctor/checks/process.js';
import { slurm } from '../../src/doctor/checks/slurm.js';
import { examine } from '../../src/doctor/examine.js';
import { ok } from '../../src/doctor/finding.js';
import { machine, programFolder } from '../support/machine.js';
import { temporaryFolder } from '../support/temporary.js';

/** As Debian's package has it, cut. */
const FUSE_CONF = '# user_allow_other - Using the allow_other mount option\n\n#user_allow_other\n';
const UPDATEDB_CONF = `PRUNE_BIND_MOUNTS="yes"
PRUNEPATHS="/tmp /var/spool /media"
PRUNEFS="NFS afs autofs fuse.sshfs tmpfs"
`;
const MISSING = /do(?:es)? not exist|ENOENT/;

test('the FUSE device of this machine can be opened', async (t) => {
  t.deepEqual(await fuseDevice(machine(t)), [ok('/dev/fuse can be opened')]);
});

test('a FUSE device that is missing, or is another file, is an error with a command', async (t) => {
  const [missing] = await fuseDevice(machine(t, { files: {} }));
  t.is(missing?.level, 'error');
  t.regex(missing?.what ?? '', MISSING);
  t.regex(missing?.remedy ?? '', /modprobe fuse/);
  const [other] = await fuseDevice(machine(t, { files: { '/dev/fuse': '' } }));
  t.is(other?.level, 'error');
  t.regex(other?.remedy ?? '', /mknod -m 666 \/dev\/fuse c 10 229/);
});

test('a FUSE device whose driver is not there is an error that names modprobe', async (t) => {
  const bare = machine(t, { files: { '/dev/null': '' } });
  // A number that no driver has taken.
  await execa('mknod', [`${bare.root}/dev/fuse`, 'c', '10', '254']);
  const [remark] = await fuseDevice(bare);
  t.is(remark?.level, 'error');
  t.regex(remark?.what ?? '', /ENODEV|ENXIO/);
  t.is(remark?.remedy, 'modprobe fuse (as root)');
});

test('fusermount3 that lost its set-uid bit is an error for ordinary users, and the remedy mends it', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'fusermount3');
  copyFileSync('/bin/true', path);
  chmodSync(path, 0o755);
  const user = machine(t, { uid: 1000, environment: { PATH: folder } });
  const [remark] = await fusermount(user);
  t.is(remark?.level, 'error');
  await execa('sh', ['-c', (remark?.remedy ?? '').replace(' (as root)', '')]);
  t.is((await fusermount(user))[0]?.level, 'ok');
  t.is((await fusermount({ ...user, environment: { PATH: '' } }))[0]?.level, 'error');
  t.is((await fusermount({ ...user, uid: 0, environment: { PATH: '' } }))[0]?.level, 'ok');
});

test('set-uid has no effect under no_new_privs, and that is said', async (t) => {
  const user = machine(t, { uid: 1000, files: { '/proc/self/status': 'Name:\tnode\nNoNewPrivs:\t1\n' } });
  const [remark] = await fusermount(user);
  t.is(remark?.level, 'error');
  t.regex(remark?.what ?? '', /no_new_privs/);
});

test('user_allow_other that is commented out is a note, and an error with --allow-other; the remedy mends it', async (t) => {
  const user = machine(t, { uid: 1000, files: { '/etc/fuse.conf': FUSE_CONF } });
  const [remark] = await allowOther(user);
  t.is(remark?.level, 'note');
  const wanting = { ...user, settings: { ...user.settings, allowOther: true } };
  t.is((await allowOther(wanting))[0]?.level, 'error');
  const [command = ''] = (remark?.remedy ?? '').split(' (as root)');
  await execa('sh', ['-c', command.replace('/etc/fuse.conf', `${user.root}/etc/fuse.conf`)]);
  t.is((await allowOther(wanting))[0]?.level, 'ok');
  t.is((await allowOther({ ...user, uid: 0, root: '/nowhere' }))[0]?.level, 'ok');
});

test('updatedb that would walk the mount is a warning; the remedy, or a pruned path, mends it', async (t) => {
  const node = machine(t, { files: { '/etc/updatedb.conf': UPDATEDB_CONF }, mountpoint: '/tmax' });
  const [remark] = await updatedb(node);
  t.is(remark?.level, 'warning');
  t.is((await updatedb({ ...node, mountpoint: '/media/tmax' }))[0]?.level, 'ok');
  const file = `${node.root}/etc/updatedb.conf`;
  await execa('sh', ['-c', (remark?.remedy ?? '').replace('/etc/updatedb.conf', file).replace(' (as root)', '')]);
  t.regex(readFileSync(file, 'utf8'), /^PRUNEFS="fuse\.tmaxfs NFS/m);
  t.is((await updatedb(node))[0]?.level, 'ok');
  t.is((await updatedb(machine(t, { files: {} })))[0]?.level, 'ok');
});

for (const [kernelRelease, level, words] of [
  ['4.18.0-553.el8_10.x86_64', 'note', /has no passthrough/],
  ['6.8.0-45-generic', 'note', /has no passthrough/],
  ['6.9.0', 'ok', /passes reads through/],
  ['7.0.1', 'ok', /passes reads through/],
] as const) {
  test(`passthrough on Linux ${kernelRelease}: ${level}`, async (t) => {
    const [remark] = await passthrough(machine(t, { kernelRelease }));
    t.is(remark?.level, level);
    t.regex(remark?.what ?? '', words);
  });
}

test('passthrough: a kernel built without it, and a process without CAP_SYS_ADMIN, are notes', async (t) => {
  const root = machine(t, { files: { '/proc/self/status': 'CapEff:\t000001ffffffffff\n' }, kernelRelease: '6.12.0' });
  t.is((await passthrough(root))[0]?.level, 'ok');
  writeFileSync(`${root.root}/proc/config.gz`, gzipSync('CONFIG_FUSE_FS=y\n# CONFIG_FUSE_PASSTHROUGH is not set\n'));
  t.regex((await passthrough(root))[0]?.what ?? '', /built without/);
  const user = machine(t, { files: { '/proc/self/status': 'CapEff:\t0000000000000000\n' }, kernelRelease: '6.12.0' });
  t.regex((await passthrough(user))[0]?.what ?? '', /needs root/);
});

test('user namespaces are tried, and what forbids them is named', async (t) => {
  t.is((await userNamespaces(machine(t)))[0]?.level, 'ok');
  const PATH = programFolder(t, { unshare: 'echo "unshare: unshare failed" >&2; exit 1' });
  for (const [files, words] of [
    [{ '/proc/sys/user/max_user_namespaces': '0\n' }, /max_user_namespaces is 0/],
    [{ '/proc/sys/kernel/unprivileged_userns_clone': '0\n' }, /unprivileged_userns_clone is 0/],
    [{ '/proc/sys/kernel/apparmor_restrict_unprivileged_userns': '1\n' }, /AppArmor/],
    [{ '/proc/sys/user/max_user_namespaces': '9000\n' }, /can't be made/],
  ] as const) {
    const [remark] = await userNamespaces(machine(t, { files, environment: { PATH } }));
    t.is(remark?.level, 'warning');
    t.regex(remark?.what ?? '', words);
  }
  const profiled = {
    '/proc/sys/kernel/apparmor_restrict_unprivileged_userns': '1\n',
    '/etc/apparmor.d/apptainer': 'profile apptainer { userns, }\n',
  };
  t.is((await userNamespaces(machine(t, { files: profiled, environment: { PATH } })))[0]?.level, 'ok');
});

test('user namespaces that are really forbidden are found, and the remedy is the way back', async (t) => {
  // A limit of a user namespace of its own, so that this machine keeps its own.
  const script =
    'echo 0 > /proc/sys/user/max_user_namespaces; cat /proc/sys/user/max_user_namespaces; unshare --user --map-root-user true';
  const inside = await execa('unshare', ['--user', '--map-root-user', 'sh', '-c', script], { reject: false });
  t.is(inside.stdout, '0');
  t.not(inside.exitCode, 0, 'what the check tries fails there');
});

test('apptainer: absent is a warning, its mode is told, and set-uid beside a mount of a user is a warning', async (t) => {
  t.is((await apptainer(machine(t, { environment: { PATH: '' } })))[0]?.level, 'warning');
  const libexec = temporaryFolder(t);
  const helpers = join(libexec, 'apptainer', 'bin');
  mkdirSync(helpers, { recursive: true });
  const buildcfg = `PACKAGE_NAME=apptainer\nLIBEXECDIR=${libexec}`;
  const script = `case $1 in --version) echo "apptainer version 1.4.5";; buildcfg) printf '${buildcfg.replaceAll('\n', '\\n')}\\n';; esac`;
  const PATH = programFolder(t, { apptainer: script });
  const plain = await apptainer(machine(t, { environment: { PATH } }));
  t.regex(plain[0]?.what ?? '', /apptainer version 1\.4\.5.*without set-uid/);
  t.is(plain[1]?.level, 'warning', 'nothing here mounts its images');
  t.regex(plain[1]?.what ?? '', /squashfuse/);
  for (const name of ['squashfuse_ll', 'starter-suid']) writeFileSync(join(helpers, name), '', { mode: 0o755 });
  t.regex((await apptainer(machine(t, { environment: { PATH } })))[1]?.what ?? '', /squashfuse_ll mounts images/);
  chmodSync(join(helpers, 'starter-suid'), 0o4755);
  const user = await apptainer(machine(t, { environment: { PATH }, uid: 1000 }));
  t.regex(user[0]?.what ?? '', /, set-uid$/);
  t.is(user[1]?.level, 'warning');
  t.regex(user[1]?.remedy ?? '', /--allow-other/);
});

test('an apptainer that hangs is not waited for without end', async (t) => {
  const PATH = programFolder(t, { apptainer: 'exec sleep 600' });
  const startedAtMs = performance.now();
  const [remark] = await apptainer(machine(t, { environment: { PATH: `${PATH}:/usr/bin:/bin` } }));
  t.regex(remark?.what ?? '', /did not tell its version/);
  t.true(performance.now() - startedAtMs < 15_000);
});

test('Node that is too old, few descriptors, and a runtime folder of another node are found', async (t) => {
  t.is((await node(machine(t, { nodeVersion: '20.18.3' })))[0]?.level, 'error');
  t.is((await node(machine(t, { nodeVersion: '20.19.0' })))[0]?.level, 'ok');
  const limits = (hard: string) => ({
    files: {
      '/proc/self/limits': `Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 ${hard}                 files\n`,
    },
  });
  t.is((await openFiles(machine(t, limits('1024'))))[0]?.level, 'warning');
  t.is((await openFiles(machine(t, limits('524288'))))[0]?.level, 'ok');
  t.is((await openFiles(machine(t, limits('unlimited'))))[0]?.level, 'ok');
  t.is((await openFiles(machine(t)))[0]?.what.includes('NaN'), false);
  const [stale] = await runtimeFolder(machine(t, { uid: 1000, environment: { XDG_RUNTIME_DIR: '/run/user/99999' } }));
  t.is(stale?.level, 'error');
  t.is(stale?.remedy, 'unset XDG_RUNTIME_DIR');
});

test('Slurm that ends daemons with their step is named, from scontrol or from a file', async (t) => {
  const nowhere = { environment: { PATH: '' }, files: {} };
  t.deepEqual(await slurm(machine(t, nowhere)), [ok('no Slurm here')]);
  const cgroup = '# a comment\nProctrackType = proctrack/cgroup\n';
  t.is((await slurm(machine(t, { ...nowhere, files: { '/etc/slurm/slurm.conf': cgroup } })))[0]?.level, 'note');
  const PATH = programFolder(t, {
    scontrol: 'echo "Configuration data"; echo "ProctrackType           = proctrack/cgroup"',
  });
  const [inJob] = await slurm(machine(t, { files: {}, environment: { PATH, SLURM_JOB_ID: '17' } }));
  t.is(inJob?.level, 'warning');
  t.regex(inJob?.remedy ?? '', /srun --overlap.*--foreground/);
  const linuxproc = { '/etc/slurm/slurm.conf': 'ProctrackType=proctrack/linuxproc\n' };
  t.is((await slurm(machine(t, { ...nowhere, files: linuxproc })))[0]?.level, 'ok');
});

test('a check that hangs and one that fails are findings, and the others are told', async (t) => {
  let isAborted = false;
  const hangs = (_: unknown, signal: AbortSignal) =>
    new Promise<never>(() => {
      signal.addEventListener('abort', () => {
        isAborted = true;
      });
    });
  const findings = await examine(
    machine(t),
    [
      { name: 'hangs', look: hangs },
      { name: 'fails', look: () => Promise.reject(new Error('no such thing')) },
      { name: 'sound', look: async () => [ok('fine')] },
    ],
    50,
  );
  t.deepEqual(
    findings.map(({ check, level }) => [check, level]),
    [
      ['hangs', 'error'],
      ['fails', 'warning'],
      ['sound', 'ok'],
    ],
  );
  t.regex(findings[0]?.what ?? '', /did not end within 0\.05 s/);
  t.regex(findings[1]?.what ?? '', /no such thing/);
  t.true(isAborted);
});
