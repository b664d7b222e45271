import test, { type ExecutionContext } from 'ava';
import type { Coverage } from '../../src/daemon/coverage.js';
import { taskMapFile } from '../../src/demo/fake-hub-folder.js';
import { type FakeFile, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { manifestFile, rowOf } from '../support/catalogs.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

const { files } = smallPool(4);
const [zero, one, two, three] = files as [FakeFile, FakeFile, FakeFile, FakeFile];
const DATE = new Date('2026-05-06T07:08:09Z');
/** Image 1 is in both pools. */
const MORE = [
  repositoryOf('org/map', [
    taskMapFile({ solvable: { a: zero.path, b: one.path }, original: { a: zero.path } }),
    zero,
    one,
  ]),
  repositoryOf('org/rows', [manifestFile([rowOf(one, { id: 'b' }), rowOf(two, { id: 'c' })]), one, two], {
    date: DATE,
  }),
];
const PLACE = ['--pool', 'tmax=org/map', '--pool', 'swe=org/rows@main', '--name', 'swe={id}.sif'];

function mountOf(t: ExecutionContext, ...args: string[]): Promise<MountedPool> {
  return MountedPool.start(t, { files: [], tasks: {}, more: MORE, place: PLACE, args });
}

async function lines(pool: MountedPool, command: string, ...args: string[]): Promise<readonly string[]> {
  return (await pool.run(command, args)).stdout.split('\n');
}

async function coverageOf(pool: MountedPool, ...args: string[]): Promise<Coverage> {
  return JSON.parse((await pool.tmaxfs(['coverage', pool.mountpoint, '--json', ...args])).stdout) as Coverage;
}

async function attributeOf(pool: MountedPool, path: string, name: string): Promise<string> {
  return (await pool.run('getfattr', ['--only-values', '-n', `user.tmaxfs.${name}`, pool.path(path)])).stdout;
}

function push(pool: MountedPool, repository: string, digit: string, pushed: readonly FakeFile[]): void {
  pool.hub.repository(repository).push({ commit: digit.repeat(40), date: DATE, files: pushed });
}

test.serial('each pool is a folder of the one mount; an image of both is one file', async (t) => {
  const pool = await mountOf(t);
  t.deepEqual(await lines(pool, 'ls', pool.path()), ['swe', 'tmax']);
  t.deepEqual(await lines(pool, 'ls', pool.path('tmax')), ['original', 'pool', 'solvable']);
  t.deepEqual(await lines(pool, 'ls', pool.path('swe/images')), ['b.sif', 'c.sif']);
  const stat = (path: string) => lines(pool, 'stat', '-c', '%i %h %s', pool.path(path));
  t.deepEqual(await stat('tmax/solvable/b.sif'), await stat('swe/images/b.sif'));
  t.is((await lines(pool, 'stat', '-c', '%h', pool.path('swe/images/b.sif')))[0], '4', 'with the two flat views');

  const sha256sum = await lines(pool, 'sha256sum', pool.path('swe/images/b.sif'), pool.path('tmax/solvable/b.sif'));
  t.deepEqual(
    sha256sum.map((line) => line.slice(0, 64)),
    [one.sha256, one.sha256],
  );
  t.is(pool.hub.requests.filter(({ server }) => server === 'cdn').length, 1, 'it was fetched once');
  t.is(await attributeOf(pool, 'swe', 'repository'), 'org/rows');
  t.is(await attributeOf(pool, 'tmax/solvable', 'commit'), MORE[0]?.branches['main'] ?? '');
  t.regex(
    (await lines(pool, 'findmnt', '-n', '-o', 'SOURCE', pool.mountpoint))[0] ?? '',
    /^tmax=org\/map\+swe=org\/rows$/,
  );
});

test.serial('what takes variants and tasks takes them below the name of their pool', async (t) => {
  const pool = await mountOf(t);
  const coverage = await coverageOf(pool);
  t.true(coverage.isComplete);
  t.is(coverage.blobs, 3, 'the image of both counts once');
  t.deepEqual(
    coverage.variants.map(({ variant, tasks }) => [variant, tasks]),
    [
      ['tmax/solvable', 2],
      ['tmax/original', 1],
      ['swe/images', 2],
    ],
  );
  t.deepEqual(
    coverage.pools.map(({ name, repository }) => [name, repository]),
    [
      ['tmax', 'org/map'],
      ['swe', 'org/rows'],
    ],
  );
  t.is((await coverageOf(pool, '--variant', 'tmax')).variants.length, 2);
  const words = (await pool.tmaxfs(['coverage', pool.mountpoint])).stdout;
  t.regex(words, /^tmax: org\/map at [0-9a-f]{40}\nswe: org\/rows at [0-9a-f]{40}\n/);

  const tsv = await pool.tmaxfs(['coverage', pool.mountpoint, '--tsv', '--tasks', '-'], {
    input: 'swe/images/c\nsolvable/a\n/anywhere/tmax/original/a.sif\n',
  });
  t.deepEqual(
    tsv.stdout.split('\n').map((line) => line.split('\t').slice(0, 3).join(' ')),
    ['swe/images c absent', 'tmax/solvable a absent', 'tmax/original a absent'],
  );

  const prefetched = await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'swe/images']);
  t.regex(prefetched.stdout, /^2 of 2 images/, prefetched.stderr);
  const pinned = await pool.tmaxfs(['pin', pool.mountpoint, 'swe', 'tmax/solvable/b']);
  t.regex(pinned.stdout, /^2 images pinned/);
  t.is(await attributeOf(pool, 'tmax/solvable/b.sif', 'pinned'), 'yes');
  t.is((await pool.tmaxfs(['unpin', pool.mountpoint, 'swe'])).exitCode, 0);
  t.regex((await pool.tmaxfs(['evict', pool.mountpoint, 'swe/images/c.sif'])).stdout, /^1 image removed/);

  const verify = ['verify', '--cache-dir', pool.cacheDirectory, ...PLACE, '--variant', 'swe'];
  const verified = await pool.tmaxfs([...verify, '--jsonl', '-']);
  t.like(JSON.parse(verified.stdout), { variant: 'swe/images', task: 'b', rc: 0 });

  const status = await pool.status();
  t.deepEqual(status.catalog.variants, { 'tmax/solvable': 2, 'tmax/original': 1, 'swe/images': 2 });
  t.like(status.pools[1], { name: 'swe', repository: 'org/rows', catalog: 'manifest', revision: 'main' });
  const screen = (await pool.tmaxfs(['status', pool.mountpoint])).stdout;
  t.regex(screen, /\/tmax\/swe {2}org\/rows@main \([0-9a-f]{12} of 2026-05-06\)/);
  t.regex(screen, /catalog {3}tmax: stays at this commit .* \(task-map\)/);
});

test.serial('a row is rewritten to the pool that is named, by its task or by its image', async (t) => {
  const pool = await mountOf(t);
  const input = `${pool.folder}/rows.jsonl`;
  await pool.run('sh', ['-c', `printf '%s\\n' '{"image":"x","task_id":"c"}' '{"image":"1.sif"}' > ${input}`]);
  const args = ['--mount', pool.mountpoint, '--variant', 'swe/images', '--column', 'image'];
  const rewritten = await pool.tmaxfs(['rewrite', input, ...args, '--output', `${input}.out`]);
  t.is(rewritten.exitCode, 0, rewritten.stderr);
  t.deepEqual(
    (await lines(pool, 'cat', `${input}.out`)).map((line) => (JSON.parse(line) as { image: string }).image),
    [pool.path('swe/images/c.sif'), pool.path('swe/images/b.sif')],
  );
});

test.serial('probe finds a task of any pool, and the smallest of all', async (t) => {
  const pool = await mountOf(t);
  for (const name of ['c', 'images/c', 'swe/images/c.sif', pool.path('swe/images/c.sif')]) {
    const probed = await pool.tmaxfs(['probe', pool.mountpoint, name]);
    t.regex(probed.stdout, /choose .* swe\/images\/c\.sif \(/, `${name}: ${probed.stderr}`);
  }
  t.regex(
    (await pool.tmaxfs(['probe', pool.mountpoint])).stdout,
    /serves org\/map at [0-9a-f]{12}, org\/rows at .*\n.*the smallest/,
  );
});

test.serial('each pool is renewed by itself: a bad commit of one keeps none of the others back', async (t) => {
  const pool = await mountOf(t);
  push(pool, 'org/map', '7', [taskMapFile({}), zero]);
  push(pool, 'org/rows', '8', [manifestFile([rowOf(three, { id: 'd' })]), three]);
  const reloaded = await pool.tmaxfs(['reload', pool.mountpoint]);
  t.is(reloaded.exitCode, 1);
  t.regex(reloaded.stderr, /failed: tmax: EBADMSG: .*names no usable variant/);
  t.regex(reloaded.stdout, /\/tmax still shows org\/map@/);
  t.regex(reloaded.stdout, /\/swe now shows org\/rows@8{40}/);
  await eventually('the new name is shown', async () => {
    return (await lines(pool, 'ls', pool.path('swe/images'))).includes('d.sif') || undefined;
  });
  t.deepEqual(await lines(pool, 'ls', pool.path('tmax/solvable')), ['a.sif', 'b.sif']);
  const { pools, follow } = await pool.status();
  t.is(pools[0]?.follow.failure?.errno, 'EBADMSG');
  t.is(pools[1]?.follow.failure, null);
  t.is(follow.failure?.errno, 'EBADMSG');
  t.is(await attributeOf(pool, 'swe', 'commit'), '8'.repeat(40));

  push(pool, 'org/map', '9', [taskMapFile({ solvable: { e: zero.path } }), zero]);
  t.is((await pool.tmaxfs(['reload', pool.mountpoint])).exitCode, 0);
  t.deepEqual((await pool.status()).catalog.variants, { 'tmax/solvable': 1, 'swe/images': 1 });
});

test.serial('each pool is followed by itself', async (t) => {
  const pool = await mountOf(t, '--follow', '1s');
  push(pool, 'org/rows', '8', [manifestFile([rowOf(three, { id: 'd' })]), three]);
  await eventually('the new commit is shown', async () => {
    return (await pool.status()).pools[1]?.commit === '8'.repeat(40) || undefined;
  });
  t.is((await pool.run('cat', [pool.path('swe/images/d.sif')])).exitCode, 0);
});

test.serial('a pool that can’t be shown fails the start, and is named', async (t) => {
  const place = ['--pool', 'tmax=org/map', '--pool', 'other=org/nothing'];
  const pool = await MountedPool.prepare(t, { files: [], tasks: {}, more: MORE, place });
  const { exitCode, stderr } = await pool.tryMount();
  t.is(exitCode, 1);
  t.regex(stderr, /the pool "other" \(org\/nothing@main\) can't be shown: /);
});

test.serial('all pools start without the network once they were mounted', async (t) => {
  const pool = await mountOf(t);
  t.is((await pool.run('cat', [pool.path('swe/images/c.sif')])).exitCode, 0);
  await pool.tmaxfs(['unmount', pool.mountpoint]);
  await pool.hub.close();
  const offline = await pool.tmaxfs([...pool.mountCommand, '--offline']);
  t.is(offline.exitCode, 0, offline.stderr);
  t.deepEqual(await lines(pool, 'ls', pool.path('tmax/solvable')), ['a.sif', 'b.sif']);
  const [sum = ''] = await lines(pool, 'sha256sum', pool.path('swe/images/c.sif'));
  t.is(sum.slice(0, 64), two.sha256);
});
