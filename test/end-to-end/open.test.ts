import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa } from 'execa';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { fileOf } from '../../src/demo/fake-hub-repository.js';
import { MountedPool } from '../support/mounted-pool.js';
import { hasEnded } from '../support/processes.js';
import { tinyImage } from '../support/sif-writer.js';
import { contentOf, smallPool } from '../support/small-pool.js';

/** Whether `cmp` finds the served file equal to its original. */
async function isServedAs(t: ExecutionContext, pool: MountedPool, path: string, content: Buffer): Promise<boolean> {
  const original = join(pool.folder, 'original');
  writeFileSync(original, content);
  const { exitCode, stdout, stderr } = await pool.run('cmp', [original, pool.path(path)]);
  t.log(`cmp ${path}: ${exitCode} ${stdout}${stderr}`);
  return exitCode === 0;
}

test.serial('every served file is byte for byte its original, cold and warm', async (t) => {
  const { files, tasks } = smallPool(12);
  const pool = await MountedPool.start(t, { files, tasks });
  for (const round of ['cold', 'warm']) {
    for (const [seed, file] of files.entries()) {
      t.true(await isServedAs(t, pool, `v/t${seed}.sif`, contentOf(file)), `${round} t${seed}`);
    }
  }
  t.is(
    pool.hub.requests.filter(({ server }) => server === 'cdn').length,
    files.length,
    'one request for bytes an image',
  );
});

test.serial('each fetched blob is one log line with variant, task, blob, bytes, seconds and source', async (t) => {
  const { files, tasks } = smallPool(2);
  const pool = await MountedPool.start(t, { files, tasks });
  await pool.run('cat', [pool.path('v/t0.sif'), pool.path('v/t1.sif'), pool.path('v/t0.sif')]);
  const lines = await pool.logged(({ msg }) => String(msg).startsWith('fetched'), files.length);
  t.deepEqual(
    lines.map(({ variant, task, blob, bytes, source }) => ({ variant, task, blob, bytes, source })),
    files.map(({ sha256, sizeBytes }, seed) => ({
      variant: 'v',
      task: `t${seed}`,
      blob: sha256,
      bytes: sizeBytes,
      source: 'hub',
    })),
  );
  t.true(lines.every(({ seconds }) => typeof seconds === 'number'));
});

test.serial('32 processes that open one cold image cause one fetch', async (t) => {
  const { files, tasks } = smallPool(1, 4_000_000);
  const pool = await MountedPool.start(t, { files, tasks });
  pool.hub.fault({ server: 'cdn', fault: { kind: 'slow', bytesPerSecond: 8_000_000 } });
  const sums = await Promise.all(Array.from({ length: 32 }, () => pool.run('sha256sum', [pool.path('v/t0.sif')])));
  t.true(sums.every(({ stdout }) => stdout.startsWith(files[0]?.sha256 ?? '?')));
  t.is(pool.hub.requests.about('images/0.sif', 'hub').length, 1, 'one resolve');
  t.is(pool.hub.requests.about('images/0.sif', 'cdn').length, 1, 'one transfer');
});

const retryable: Record<string, Fault> = {
  'a flipped byte': { kind: 'corrupt', atByte: 100_000 },
  'a short body': { kind: 'truncate', toBytes: 100_000 },
  'HTML with status 200': { kind: 'html' },
};
for (const [what, fault] of Object.entries(retryable)) {
  test.serial(`${what} once is mended by another try`, async (t) => {
    const { files, tasks } = smallPool(1);
    const pool = await MountedPool.start(t, { files, tasks });
    const installed = pool.hub.fault({ server: 'cdn', fault });
    t.true(await isServedAs(t, pool, 'v/t0.sif', contentOf(files[0])));
    t.is(installed.hits, 1);
    t.deepEqual((await pool.status()).quarantine, []);
  });

  test.serial(
    `${what} every time is EBADMSG, never one readable byte, and log and status name the cause`,
    async (t) => {
      const { files, tasks } = smallPool(1);
      const pool = await MountedPool.start(t, { files, tasks });
      const installed = pool.hub.fault({ server: 'cdn', fault, requests: 'every' });
      await refused(t, pool);
      t.true(installed.hits >= 2, 'it was tried again');
    },
  );
}

test.serial(
  'a zeroed superblock, published like that, is EBADMSG at once: never one readable byte, and log and status name the cause',
  async (t) => {
    const image = tinyImage(1);
    const start = image.indexOf('hsqs');
    image.fill(0, start, start + 96);
    const pool = await MountedPool.start(t, {
      files: [fileOf('images/0.sif', image)],
      tasks: { v: { t0: 'images/0.sif' } },
    });
    await refused(t, pool);
    t.is(pool.hub.requests.about('images/0.sif', 'cdn').length, 1, 'another fetch could not mend it');
  },
);

async function refused(t: ExecutionContext, pool: MountedPool): Promise<void> {
  for (const attempt of ['first', 'second']) {
    const { exitCode, stdout, stderr } = await pool.run('cat', [pool.path('v/t0.sif')]);
    t.is(exitCode, 1, attempt);
    t.is(stdout, '', 'not one byte');
    t.regex(stderr, /Bad message/, attempt);
  }
  const { quarantine, lastFailures } = await pool.status();
  t.is(quarantine.length, 1);
  t.is(quarantine[0]?.path, 'images/0.sif');
  t.is(lastFailures[0]?.errno, 'EBADMSG');
  t.true((quarantine[0]?.reason ?? '').length > 10, quarantine[0]?.reason);
  const words = await pool.tmaxfs(['status', pool.mountpoint]);
  t.true(words.stdout.includes(quarantine[0]?.reason ?? '?'));
  const [failure] = await pool.logged(({ msg }) => String(msg).includes('failed: EBADMSG'));
  t.true(String(failure?.['reason']).includes(quarantine[0]?.reason ?? '?'), JSON.stringify(failure));
  const state = await pool.run('getfattr', ['--only-values', '-n', 'user.tmaxfs.state', pool.path('v/t0.sif')]);
  t.is(state.stdout, 'quarantined');
  t.deepEqual(readdirSync(join(pool.cacheDirectory, 'blobs')), []);
}

test.serial(
  'kill -9 in the middle of a fetch, then a new mount on the same folder: it works, and no half file is served',
  async (t) => {
    const { files, tasks } = smallPool(3, 3_000_000);
    const pool = await MountedPool.start(t, { files, tasks });
    await pool.run('cat', [pool.path('v/t1.sif')]);
    const { pid } = await pool.status();
    const stall = pool.hub.fault({
      server: 'cdn',
      path: 'images/0.sif',
      fault: { kind: 'stall', afterBytes: 1_500_000 },
      requests: 'every',
    });
    const reader = execa('cat', [pool.path('v/t0.sif')], { reject: false, encoding: 'buffer' });
    await pool.hub.requests.waitFor(({ file, server }) => file === 'images/0.sif' && server === 'cdn');
    while (((await pool.status()).fetches.running[0]?.receivedBytes ?? 0) === 0) await new Promise(setImmediate);
    process.kill(pid, 'SIGKILL');
    const cut = await reader;
    t.not(cut.exitCode, 0);
    t.is(cut.stdout.length, 0);
    stall.remove();

    await pool.mount();
    t.not((await pool.status()).pid, pid);
    for (const [seed, file] of files.entries()) t.true(await isServedAs(t, pool, `v/t${seed}.sif`, contentOf(file)));
    t.is(
      pool.hub.requests.about('images/1.sif', 'cdn').length,
      1,
      'what was proven before the crash is not fetched again',
    );
    const [, resumed] = pool.hub.requests.about('images/0.sif', 'cdn');
    t.regex(String(resumed?.headers.range), /^bytes=[1-9]/, 'what had arrived is not fetched again');
  },
);

test.serial('the token goes to the Hub alone', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.start(t, { files, tasks, env: { HF_TOKEN: 'hf_secret' }, readers: ['hf_secret'] });
  t.true(await isServedAs(t, pool, 'v/t0.sif', contentOf(files[0])));
  const withToken = pool.hub.requests.filter(({ headers }) => headers.authorization !== undefined);
  t.true(withToken.length > 0);
  t.deepEqual([...new Set(withToken.map(({ server }) => server))], ['hub']);
  t.false(readFileSync(pool.logFile, 'utf8').includes('hf_secret'));
});

test.serial('the mount can’t be written to in any way', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.start(t, { files, tasks });
  const target = pool.path('v/t0.sif');
  for (const command of [
    `echo x > ${target}`,
    `echo x >> ${target}`,
    `touch ${pool.path('v/new.sif')}`,
    `rm ${target}`,
    `mkdir ${pool.path('w')}`,
    `chmod 777 ${target}`,
    `mv ${target} ${pool.path('v/x.sif')}`,
    `ln ${target} ${pool.path('v/x.sif')}`,
  ]) {
    const { exitCode, stderr } = await pool.run('sh', ['-c', command]);
    t.not(exitCode, 0, command);
    t.regex(stderr, /Read-only file system/, command);
  }
});

test.serial('open files outlive an unmount and the daemon', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.start(t, { files, tasks });
  const content = contentOf(files[0]);
  // Opens, says so, and reads on only when told to.
  const program = `
    const fs = require('node:fs');
    const descriptor = fs.openSync(process.argv[1], 'r');
    console.log('open');
    process.stdin.once('data', () => process.stdout.write(fs.readFileSync(descriptor), () => process.exit()));`;
  const reader = execa(process.execPath, ['-e', program, pool.path('v/t0.sif')], { reject: false, encoding: 'buffer' });
  await once(reader.stdout, 'data');
  const { passthrough, pid } = await pool.status();
  const unmounted = await pool.tmaxfs(['unmount', pool.mountpoint]);
  t.is(unmounted.exitCode, 1);
  t.regex(unmounted.stderr, new RegExp(`in use.*${reader.pid}`), 'the holder is named');
  t.is((await pool.tmaxfs(['unmount', pool.mountpoint, '--lazy'])).exitCode, 0);
  t.false(existsSync(pool.path('v')));
  if (passthrough) {
    process.kill(pid, 'SIGTERM');
    while (!hasEnded(pid)) await new Promise((resolve) => setTimeout(resolve, 20));
  }
  reader.stdin.end('go');
  const { stdout, stderr } = await reader;
  t.log(Buffer.from(stderr).toString());
  t.true(Buffer.from(stdout).subarray('open\n'.length).equals(content));
});
