import { appendFileSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { MountedPool, POOL_NAME } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const IN_VARIABLE = 'hf_theTokenOfAVariable';
const IN_FILE = 'hf_theTokenOfAFile';
const PASSWORD = 'pass/w@rd-of-the-proxy';
const DOCKER = 'password of a registry';
const SIGNATURE = 'c2lnbmVkLWJ5LXRoZS1jZG4';
const HEADER = 'bm9uZS1vZi15b3VyLWJ1c2luZXNz';

test.serial('a report has all its sections and none of the secrets that lie about', async (t) => {
  const { files, tasks } = smallPool(2);
  const home = temporaryFolder(t);
  writeFileSync(join(home, 'token'), `${IN_FILE}\n`);
  const env = {
    HF_TOKEN: IN_VARIABLE,
    HF_HOME: home,
    HTTPS_PROXY: `http://someone:${encodeURIComponent(PASSWORD)}@proxy.example:3128`,
    all_proxy: `someone:${PASSWORD}@proxy.example:1080`,
    APPTAINER_DOCKER_PASSWORD: DOCKER,
    TMAXFS_CACHE_SIZE: '1G',
  };
  const pool = await MountedPool.start(t, {
    files,
    tasks,
    readers: [IN_VARIABLE],
    env,
    args: ['--log-level', 'trace'],
  });
  await pool.run('cat', [pool.path('v', 't0.sif')]);
  // A refusal that repeats the token, as a careless server might.
  pool.hub.fault({
    path: 'images/1.sif',
    fault: { kind: 'status', status: 403, headers: { 'x-error-message': `bad token ${IN_VARIABLE}` } },
    requests: 'every',
  });
  await pool.run('cat', [pool.path('v', 't1.sif')]);
  const planted = [
    { msg: `GET https://cdn.example/blob?Expires=99&Signature=${SIGNATURE}&Key-Pair-Id=KPLANTED` },
    { msg: 'request', headers: { authorization: `Bearer ${IN_FILE}`, 'proxy-authorization': `Basic ${HEADER}` } },
    { msg: `connecting to http://someone:${encodeURIComponent(PASSWORD)}@proxy.example:3128 with ${PASSWORD}` },
    { msg: `docker login said ${JSON.stringify({ password: DOCKER })}` },
    { msg: `basic ${Buffer.from(`someone:${PASSWORD}`).toString('base64')}` },
  ];
  appendFileSync(pool.logFile, planted.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const output = join(pool.folder, 'report.txt');
  // The cache of the daemon is found without being named.
  const words = ['bugreport', pool.mountpoint, '--repo', POOL_NAME];
  const { exitCode, stdout, stderr } = await pool.tmaxfs([...words, '--output', output]);
  t.is(exitCode, 0, stderr);
  t.regex(stdout, new RegExp(`^${output}: read it before you send it`));
  t.is(statSync(output).mode & 0o777, 0o600);
  const report = readFileSync(output, 'utf8');
  for (const secret of [IN_VARIABLE, IN_FILE, PASSWORD, encodeURIComponent(PASSWORD), DOCKER, SIGNATURE, HEADER]) {
    for (const spelling of [secret, Buffer.from(secret).toString('base64').replace(/=+$/, '')]) {
      t.false(report.includes(spelling), spelling);
    }
  }
  t.false(report.includes(Buffer.from(`someone:${PASSWORD}`).toString('base64')));
  for (const section of ['versions', 'doctor', 'settings', 'variables', 'mounts', 'status of', 'cache', 'log of']) {
    t.regex(report, new RegExp(`^== ${section}`, 'm'));
  }
  for (const words of [
    /^tmaxfs +\d+\.\d+\.\d+$/m,
    /^kernel +Linux /m,
    /^fuse +fusermount3 version/m,
    /^ok +fuse-device/m,
    /^HF_TOKEN=\[removed\]$/m,
    /^HTTPS_PROXY=http:\/\/\[removed\]@proxy\.example:3128$/m,
    /^all_proxy=\[removed\]@proxy\.example:1080$/m,
    /^TMAXFS_CACHE_SIZE=1G$/m,
    new RegExp(`- fuse\\.tmaxfs ${POOL_NAME} `),
    /"commit": "[0-9a-f]{40}"/,
    new RegExp(`^== cache ${pool.cacheDirectory}\\n\\n1 blob, .*, 0 of them without a proof`, 'm'),
    /"msg":"starting to mount /,
    /cdn\.example\/blob\?\[removed\]/,
  ]) {
    t.regex(report, words);
  }
});

test.serial('without a daemon it has the log of the last one, and says what could not be had', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  await pool.hub.close();
  const state = join(pool.folder, '.local', 'state', 'tmaxfs');
  mkdirSync(state, { recursive: true });
  const { exitCode, stdout } = await pool.tmaxfs(['bugreport', pool.mountpoint, '--output', '-']);
  t.is(exitCode, 0);
  t.regex(stdout, /^== cache [^\n]*\n\n\(not to be had: there is no cache at /m);
  t.regex(stdout, new RegExp(`^== log of ${pool.mountpoint}\\n\\n\\(not to be had: ENOENT`, 'm'));
  t.regex(stdout, /^ERROR +hub /m);
});

test.serial('the log is cut at whole lines, and the report has a size', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  appendFileSync(pool.logFile, `{"msg":"${'x'.repeat(300)}"}\n`.repeat(10_000));
  const { stdout } = await pool.tmaxfs([
    'bugreport',
    pool.mountpoint,
    '--cache-dir',
    pool.cacheDirectory,
    '--output',
    '-',
  ]);
  const log = stdout.slice(stdout.indexOf('== log of')).split('\n').slice(3).filter(Boolean);
  t.true(log.length > 500);
  // The daemon may have had something to say meanwhile.
  t.notThrows(() => log.map((line) => JSON.parse(line)));
  t.true(stdout.length < 400_000);
});

test.serial('by default the file lies here, under a name of its own', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  const { exitCode } = await pool.spawn([
    'sh',
    '-c',
    `cd ${pool.folder} && exec ${process.execPath} ${pool.executable.join(' ')} bugreport ${pool.mountpoint}`,
  ]);
  t.is(exitCode, 0);
  t.is(readdirSync(pool.folder).filter((name) => /^tmaxfs-bugreport-[\w.-]+-\d{8}T\d{6}\.txt$/.test(name)).length, 1);
  const refused = await pool.tmaxfs(['bugreport', '--output', join(pool.folder, 'absent', 'x')]);
  t.is(refused.exitCode, 1);
  t.regex(refused.stderr, /can't be written \(ENOENT\)/);
});
