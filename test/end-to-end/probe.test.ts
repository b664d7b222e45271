import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import { hasApptainer } from '../support/apptainer.js';
import { programFolder } from '../support/machine.js';
import { MountedPool, type MountedPoolOptions } from '../support/mounted-pool.js';
import { demoImagesFolder, packagePath } from '../support/paths.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

const needsApptainer = hasApptainer ? test.serial : test.serial.skip;

function realPool(): { readonly files: readonly FakeFile[]; readonly tasks: MountedPoolOptions['tasks'] } {
  const files = ['tiny-gzip', 'tiny-zstd'].map((name) =>
    fileOf(`images/${name}.sif`, readFileSync(join(demoImagesFolder, `${name}.sif`))),
  );
  return { files, tasks: { solvable: { large: 'images/tiny-gzip.sif', small: 'images/tiny-zstd.sif' } } };
}

/** A PATH on which apptainer is the real one, in a tree of its own that sees the folder of the pool. */
function apptainerPath(t: ExecutionContext): string {
  const root = packagePath('test', 'support', 'apptainer-root');
  const script = `for word; do case $word in /*/tmax/*) folder=\${word%/tmax/*};; esac; done
if [ -e /usr/bin/apptainer ]; then exec /usr/bin/apptainer "$@"; fi
exec '${root}' exec "\${folder:-/tmp}" apptainer "$@"`;
  return `${programFolder(t, { apptainer: script })}:${process.env['PATH']}`;
}

needsApptainer('probe fetches the smallest image, opens it and runs it, each step with its time', async (t) => {
  const pool = await MountedPool.start(t, { ...realPool(), env: { PATH: apptainerPath(t) } });
  const cold = await pool.tmaxfs(['probe', pool.mountpoint]);
  t.is(cold.exitCode, 0, cold.stdout + cold.stderr);
  const [small, large] = ['solvable/small.sif', 'solvable/large.sif'];
  const step = (name: string, words: string) => new RegExp(`^${name} +\\d+\\.\\d\\d s  ${words}`, 'm');
  for (const [name, words] of [
    ['daemon', 'pid \\d+ serves test-org/test-pool at [0-9a-f]{12}$'],
    ['choose', `${small}, the smallest \\(1\\.0 MiB\\), absent: it is fetched now$`],
    ['fetch', '1\\.0 MiB fetched and proven$'],
    ['open', 'from the disk$'],
    ['exec', 'apptainer exec .*/solvable/small\\.sif true$'],
  ] as const) {
    t.regex(cold.stdout, step(name, words));
  }
  t.regex(cold.stdout, /^sound: solvable\/small\.sif runs$/m);
  const warm = await pool.tmaxfs(['probe', pool.mountpoint]);
  t.is(warm.exitCode, 0);
  t.regex(warm.stdout, /on this disk already: nothing is fetched/);
  t.notRegex(warm.stdout, /^fetch/m);
  for (const words of [[pool.mountpoint, 'large'], [pool.mountpoint, 'solvable/large.sif'], [pool.path(large)]]) {
    const named = await pool.tmaxfs(['probe', ...words]);
    t.is(named.exitCode, 0, named.stdout + named.stderr);
    t.regex(named.stdout, /^choose .*solvable\/large\.sif \(1\.1 MiB\)/m);
  }
  t.is(pool.hub.requests.about('images/tiny-gzip.sif', 'cdn').length, 1);
});

test.serial('an apptainer that is not installed is told apart from an image that can’t be opened', async (t) => {
  const pool = await MountedPool.start(t, { ...realPool() });
  const PATH = programFolder(t, {});
  const environment = ['env', `PATH=${PATH}`, process.execPath, ...pool.executable, 'probe', pool.mountpoint];
  const { exitCode, stdout } = await pool.spawn(environment.map((word) => (word === 'env' ? '/usr/bin/env' : word)));
  t.is(exitCode, 1);
  t.regex(String(stdout), /^open .* from the disk$/m);
  t.regex(String(stdout), /^exec .* FAILED: apptainer is not installed.*The image itself can be opened$/m);
  t.regex(String(stdout), /^do: "tmaxfs doctor"/m);
});

test.serial('an apptainer that fails is quoted; one that hangs is ended', async (t) => {
  const script = 'echo "FATAL: could not open image: permission denied" >&2; exit 255';
  const folder = programFolder(t, { apptainer: script });
  const pool = await MountedPool.start(t, { ...realPool(), env: { PATH: `${folder}:${process.env['PATH']}` } });
  const { exitCode, stdout } = await pool.tmaxfs(['probe', pool.mountpoint]);
  t.is(exitCode, 1);
  t.regex(
    stdout,
    /^exec .*FAILED: apptainer exec .* failed \(exit code 255\):\nFATAL: could not open image: permission denied$/m,
  );
});

test.serial('an image that can’t be fetched fails at that step, with the errno', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.start(t, { files, tasks });
  pool.hub.fault({ path: 'images/0.sif', fault: { kind: 'status', status: 403 }, requests: 'every' });
  const { exitCode, stdout } = await pool.tmaxfs(['probe', pool.mountpoint]);
  t.is(exitCode, 1);
  t.regex(stdout, /^fetch .*FAILED: open failed with EACCES/m);
  t.regex(stdout, /^do: "tmaxfs status"/m);
  t.notRegex(stdout, /^exec/m);
});

test.serial('a refused image is not the one that is probed, and named it says why', async (t) => {
  const [good] = realPool().files;
  const broken = fileOf('images/broken.sif', Buffer.from('no image at all'));
  if (good === undefined) return t.fail('there is an image');
  const tasks = { v: { good: good.path, broken: broken.path } };
  const pool = await MountedPool.start(t, { files: [good, broken], tasks });
  const named = await pool.tmaxfs(['probe', pool.mountpoint, 'broken']);
  t.is(named.exitCode, 1);
  t.regex(named.stdout, /^fetch .*FAILED: open failed with EBADMSG: .+/m);
  const chosen = await pool.tmaxfs(['probe', pool.mountpoint]);
  t.regex(chosen.stdout, /^choose .*v\/good\.sif, the smallest/m);
});

test.serial('offline, only what is on disk can be probed', async (t) => {
  const pool = await MountedPool.start(t, realPool());
  await pool.run('cat', [pool.path('solvable', 'large.sif')]);
  await pool.tmaxfs(['unmount', pool.mountpoint]);
  const offline = await MountedPool.start(t, {
    ...realPool(),
    cacheDirectory: pool.cacheDirectory,
    args: ['--offline'],
  });
  t.regex((await offline.tmaxfs(['probe', offline.mountpoint])).stdout, /^choose .*solvable\/large\.sif/m);
});

test.serial('without a mount, or a task of that name, it says what is missing', async (t) => {
  const folder = temporaryFolder(t);
  chmodSync(folder, 0o755);
  writeFileSync(join(folder, 'x'), '');
  const pool = await MountedPool.start(t, smallPool(1));
  const noMount = await pool.tmaxfs(['probe', folder]);
  t.is(noMount.exitCode, 1);
  t.regex(noMount.stderr, /no tmaxfs daemon serves/);
  const noTask = await pool.tmaxfs(['probe', pool.mountpoint, 'v/t9']);
  t.is(noTask.exitCode, 1);
  t.regex(noTask.stderr, /has no task v\/t9/);
  const outside = await pool.tmaxfs(['probe', pool.mountpoint, '../x']);
  t.regex(outside.stderr, /has no task/);
});
