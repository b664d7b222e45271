import { once } from 'node:events';
import { createServer } from 'node:net';
import test from 'ava';
import { execa } from 'execa';
import type { Diagnosis } from '../../src/cli/doctor.js';
import { CHECKS } from '../../src/doctor/checks.js';
import { LEVELS } from '../../src/doctor/finding.js';
import { programFolder } from '../support/machine.js';
import { MountedPool, type MountedPoolOptions, POOL_NAME } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

const TOTAL_LIMIT_MS = 15_000;

async function diagnosis(pool: MountedPool, args: readonly string[] = []) {
  const words = ['--repo', POOL_NAME, '--cache-dir', pool.cacheDirectory, '--cache-size', '1G', ...args];
  const { exitCode, stdout, stderr } = await pool.tmaxfs(['doctor', '--json', ...words]);
  if (stdout === '') throw new Error(`tmaxfs doctor failed: ${stderr}`);
  const { findings, isSound } = JSON.parse(stdout) as Diagnosis;
  const about = (check: string) => findings.filter((finding) => finding.check === check);
  return { exitCode, findings, isSound, about };
}

test.serial('doctor --json has every check, exits with 0 where nothing is an error, and changes nothing', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  const { exitCode, findings, isSound, about } = await diagnosis(pool, [pool.mountpoint]);
  t.is(exitCode, 0, JSON.stringify(findings.filter(({ level }) => level === 'error')));
  t.true(isSound);
  t.deepEqual(
    [...new Set(findings.map(({ check }) => check))],
    CHECKS.map(({ name }) => name),
  );
  for (const finding of findings) {
    t.true(LEVELS.includes(finding.level));
    t.deepEqual(Object.keys(finding).sort(), ['check', 'level', 'remedy', 'what', 'why']);
    t.is(finding.why === null, finding.level === 'ok', finding.what);
  }
  t.deepEqual(
    about('mounts').map(({ what }) => what),
    [`${pool.mountpoint} (${POOL_NAME}) is served`],
  );
  t.is(pool.hub.requests.filter(({ server }) => server === 'cdn').length, 1, 'one byte');
});

test.serial('for people, it prints a line a finding, why and what to do, and counts them', async (t) => {
  const pool = await MountedPool.prepare(t, smallPool(1));
  await pool.hub.close();
  const { exitCode, stdout } = await pool.tmaxfs(['doctor', '--repo', POOL_NAME]);
  t.is(exitCode, 1);
  t.regex(stdout, /^ok {7}fuse-device {2,}\/dev\/fuse can be opened$/m);
  t.regex(stdout, /^ERROR {4}hub .*ECONNREFUSED.*\n +why: .*\n +do: {2}curl /m);
  t.regex(stdout, /^[1-9]\d* errors?, \d+ warnings?, \d+ notes?, \d+ sound$/m);
});

test.serial('a word or a variable that mount would refuse is wrong usage', async (t) => {
  const pool = await MountedPool.prepare(t, { ...smallPool(1), env: { TMAXFS_CACHE_SIZE: 'much' } });
  const { exitCode, stderr } = await pool.tmaxfs(['doctor']);
  t.is(exitCode, 2);
  t.regex(stderr, /--cache-size: "much" is no size/);
});

test.serial('the words of mount and their twins are heeded', async (t) => {
  const pool = await MountedPool.prepare(t, { ...smallPool(1), env: { TMAXFS_REVISION: 'nope' } });
  const { exitCode, about } = await diagnosis(pool);
  t.is(exitCode, 1);
  t.regex(about('hub')[0]?.what ?? '', /has no revision "nope"/);
});

test.serial('a mount whose daemon was killed is an error, and both of its remedies work', async (t) => {
  const pool = await MountedPool.start(t, smallPool(1));
  for (const remedy of [0, 1]) {
    process.kill((await pool.status()).pid, 'SIGKILL');
    await gone(pool);
    const { exitCode, about } = await diagnosis(pool, [pool.mountpoint]);
    t.is(exitCode, 1);
    const [dead] = about('mounts');
    t.regex(dead?.what ?? '', /is dead \(ENOTCONN\)/);
    t.true(dead?.remedy?.includes(`tmaxfs mount ${pool.mountpoint}`));
    if (remedy === 0) {
      await pool.mount();
      continue;
    }
    const [, words = ''] = dead?.remedy?.split(', or tmaxfs ') ?? [];
    t.is(words, `unmount --dead ${pool.mountpoint}`);
    t.is((await pool.tmaxfs(words.split(' '))).exitCode, 0);
    t.regex((await diagnosis(pool, [pool.mountpoint])).about('mounts')[0]?.what ?? '', /can be mounted on/);
  }
});

async function gone(pool: MountedPool): Promise<void> {
  const isDead = async () => /not connected/.test((await pool.run('stat', ['-f', pool.mountpoint])).stderr);
  while (!(await isDead())) await new Promise((resolve) => setTimeout(resolve, 50));
}

test.serial('whatever hangs (disk, mount, Hub, apptainer), the answer comes within 15 s and names it', async (t) => {
  const silent = createServer((socket) => socket.on('error', () => undefined)).listen(0, '127.0.0.1');
  await once(silent, 'listening');
  t.teardown(() => silent.close());
  const address = silent.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const PATH = `${programFolder(t, { apptainer: 'exec sleep 600' })}:${process.env['PATH']}`;
  const pool = await MountedPool.start(t, smallPool(1));
  const { pid } = await pool.status();
  process.kill(pid, 'SIGSTOP');
  t.teardown(() => process.kill(pid, 'SIGCONT'));
  const env = { PATH, HF_ENDPOINT: `http://127.0.0.1:${port}`, HF_TOKEN: 'hf_aToken' };
  const startedAtMs = performance.now();
  const words = ['doctor', '--json', '--cache-dir', pool.path('cache')];
  const { exitCode, stdout } = await execa(process.execPath, [...pool.executable, ...words], {
    env: { ...env, HOME: pool.folder },
    reject: false,
    timeout: 60_000,
  });
  const tookMs = performance.now() - startedAtMs;
  process.kill(pid, 'SIGCONT');
  t.is(exitCode, 1);
  t.true(tookMs < TOTAL_LIMIT_MS, `${tookMs} ms`);
  const { findings } = JSON.parse(stdout) as Diagnosis;
  const told = findings.map(({ check, level, what }) => `${level} ${check} ${what}`).join('\n');
  t.regex(told, /^error cache-disk the disk of the cache does not answer/m);
  t.regex(told, /^error mounts .* does not answer: its daemon hangs/m);
  t.regex(told, /^error hub .*no answer within/m);
  t.regex(told, /^warning token /m);
  t.regex(told, /^ok apptainer .*did not tell its version/m);
});

test.serial('an ordinary user is told what an ordinary user needs', async (t) => {
  const options: MountedPoolOptions = { ...smallPool(1), uid: 1000, env: { XDG_RUNTIME_DIR: '/run/user/99999' } };
  const pool = await MountedPool.prepare(t, options);
  const { exitCode, about } = await diagnosis(pool, ['--allow-other', pool.mountpoint]);
  t.is(exitCode, 1);
  t.regex(about('fusermount')[0]?.what ?? '', /fusermount3 is set-uid root/);
  t.regex(about('passthrough')[0]?.what ?? '', /needs root|has no passthrough/);
  t.is(about('runtime-folder')[0]?.remedy, 'unset XDG_RUNTIME_DIR');
  t.is(about('mounts')[0]?.level, 'ok');
});
