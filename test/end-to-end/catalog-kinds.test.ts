import test, { type ExecutionContext } from 'ava';
import type { Coverage } from '../../src/daemon/coverage.js';
import { type FakeFile, type FakeRepository, fileOf, repositoryOf } from '../../src/demo/fake-hub-repository.js';
import { manifestFile, rowOf } from '../support/catalogs.js';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

const OWN = 'org/manifest';
const ELSEWHERE = 'org/shard';
const PINNED = 'e'.repeat(40);
const { files } = smallPool(4);
const [zero, one, two, three] = files as [FakeFile, FakeFile, FakeFile, FakeFile];

/** Two images of its own and one that lies elsewhere at a commit; the branch there has moved on since. */
function manifestPool(rows: readonly unknown[] = ROWS): readonly FakeRepository[] {
  const shard = repositoryOf(ELSEWHERE, [two], { commit: PINNED });
  const moved = repositoryOf(ELSEWHERE, [three]);
  return [
    repositoryOf(OWN, [manifestFile(rows), zero, one]),
    { ...shard, commits: [...shard.commits, ...moved.commits], branches: moved.branches },
  ];
}

const ELSEWHERE_AT = { hf_repo: ELSEWHERE, hf_revision: PINNED };
const ROWS = [
  rowOf(zero, { task_id: 'zero', split: 'easy', image: 'a/b:c' }),
  rowOf(one, { task_id: 'one', split: 'hard', hf_repo: OWN }),
  rowOf(two, { task_id: 'two', split: 'hard', ...ELSEWHERE_AT }),
];

function mountOf(t: ExecutionContext, repository: string, more: readonly FakeRepository[], ...words: string[]) {
  return MountedPool.start(t, { files: [], tasks: {}, more, place: ['--repo', repository, ...words] });
}

async function listOf(pool: MountedPool, ...path: string[]): Promise<readonly string[]> {
  return (await pool.run('ls', [pool.path(...path)])).stdout.split('\n');
}

async function sha256Of(pool: MountedPool, path: string): Promise<string> {
  return (await pool.run('sha256sum', [pool.path(path)])).stdout.slice(0, 64);
}

async function coverageOf(pool: MountedPool): Promise<Coverage> {
  return JSON.parse((await pool.tmaxfs(['coverage', pool.mountpoint, '--json'])).stdout) as Coverage;
}

test.serial(
  'a manifest is mounted: listed, opened from the repository that has each image, covered, prefetched',
  async (t) => {
    const pool = await mountOf(t, OWN, manifestPool());
    t.deepEqual(await listOf(pool), ['images', 'pool']);
    t.deepEqual(await listOf(pool, 'images'), ['one.sif', 'two.sif', 'zero.sif']);
    t.is(await sha256Of(pool, 'images/zero.sif'), zero.sha256);
    t.is(await sha256Of(pool, 'images/two.sif'), two.sha256);
    const attribute = async (name: string) =>
      (await pool.run('getfattr', ['--only-values', '-n', `user.tmaxfs.${name}`, pool.path('images/two.sif')])).stdout;
    t.is(await attribute('repository'), ELSEWHERE);
    t.is(await attribute('commit'), PINNED);

    const coverage = await coverageOf(pool);
    t.true(coverage.isComplete);
    t.like(coverage, { repository: OWN, blobs: 3, problemCount: 0 });
    t.like(coverage.variants[0], { variant: 'images', tasks: 3, readyBlobs: 2 });
    t.is((await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'images'])).exitCode, 0);
    t.is((await coverageOf(pool)).variants[0]?.readyBlobs, 3);
    t.truthy(await pool.logged(({ msg }) => /catalog \(manifest\) of org\/manifest/.test(String(msg))));
    t.is((await pool.status()).pools[0]?.catalog, 'manifest');
  },
);

test.serial('files are named from the fields of their rows', async (t) => {
  const pool = await mountOf(t, OWN, manifestPool(), '--name', '{split}/bench_{task_id}.sif');
  t.deepEqual(await listOf(pool), ['easy', 'hard', 'pool']);
  t.deepEqual(await listOf(pool, 'hard'), ['bench_one.sif', 'bench_two.sif']);
  t.is(await sha256Of(pool, 'easy/bench_zero.sif'), zero.sha256);
});

test.serial('what the manifest says and the listings do not is known before anybody opens it', async (t) => {
  const rows = [
    ...ROWS,
    rowOf(three, { task_id: 'gone', ...ELSEWHERE_AT }),
    rowOf({ ...zero, sha256: 'f'.repeat(64) }, { task_id: 'other-digest' }),
    rowOf({ ...zero, sizeBytes: 7 }, { task_id: 'other-size' }),
    rowOf(one, { task_id: 'zero' }),
    rowOf(zero, { task_id: '../x' }),
    'no row',
  ];
  const pool = await mountOf(t, OWN, manifestPool(rows));
  t.deepEqual(await listOf(pool, 'images'), ['one.sif', 'two.sif', 'zero.sif']);
  const coverage = await coverageOf(pool);
  t.false(coverage.isComplete);
  t.is(coverage.problemCount, 6);
  const reasons = new Map(coverage.variants[0]?.unresolvable.map(({ task, reason }) => [task, reason]));
  t.regex(reasons.get('gone') ?? '', /"images\/3.sif" is not in org\/shard@e{40}/);
  t.regex(reasons.get('other-digest') ?? '', /another sha256 in the listing/);
  t.regex(reasons.get('other-size') ?? '', /and 7 in the manifest/);
  const problems = coverage.problems.map(({ subject, reason }) => `${subject}: ${reason}`).join('\n');
  t.regex(problems, /task "zero" of images: it is named twice, and the first is shown/);
  t.regex(problems, /line 8 of manifest.jsonl: its "task_id" contains "\/"/);
  t.regex(problems, /line 9 of manifest.jsonl: it is no JSON object/);
  t.is((await pool.tmaxfs(['coverage', pool.mountpoint])).exitCode, 1);
});

test.serial('an image elsewhere that is broken as published is refused, and told by its task', async (t) => {
  const broken = fileOf('broken.sif', Buffer.alloc(100_000, 'no image'));
  const rows = [rowOf(zero, { id: 'fine' }), rowOf(broken, { id: 'broken', hf_repo: ELSEWHERE })];
  const more = [repositoryOf(OWN, [manifestFile(rows), zero]), repositoryOf(ELSEWHERE, [broken])];
  const pool = await mountOf(t, OWN, more);
  t.regex((await pool.run('cat', [pool.path('images/broken.sif')])).stderr, /Bad message/);
  const coverage = await coverageOf(pool);
  t.false(coverage.isComplete);
  t.deepEqual(
    coverage.variants[0]?.refused.map(({ task }) => task),
    ['broken'],
  );
  const { quarantine, lastFailures } = await pool.status();
  t.like(quarantine[0], { cause: 'image', path: 'broken.sif', names: ['images/broken'] });
  t.like(lastFailures[0], { blob: broken.sha256, names: ['images/broken'], errno: 'EBADMSG' });
});

test.serial('any repository is shown as its images lie', async (t) => {
  const lying = [
    { ...zero, path: 'singularity/v0.1.0/a.sif' },
    { ...one, path: 'singularity/v0.1.0/b.sif' },
    { ...two, path: 'c.sif' },
  ];
  const pool = await mountOf(t, 'org/listing', [repositoryOf('org/listing', lying)]);
  t.deepEqual(await listOf(pool), ['images', 'pool', 'singularity']);
  t.deepEqual(await listOf(pool, 'singularity/v0.1.0'), ['a.sif', 'b.sif']);
  t.is(await sha256Of(pool, 'singularity/v0.1.0/b.sif'), one.sha256);
  t.is(await sha256Of(pool, 'images/c.sif'), two.sha256);
  t.is((await pool.run('stat', ['-c', '%h', pool.path()])).stdout, '5');

  const { variants, isComplete } = await coverageOf(pool);
  t.true(isComplete);
  t.deepEqual(variants.map(({ variant }) => variant).sort(), ['images', 'singularity/v0.1.0']);
  const prefetched = await pool.tmaxfs(['prefetch', pool.mountpoint, '--variant', 'singularity']);
  t.regex(prefetched.stdout, /^2 of 2 images/);
  const pinned = await pool.tmaxfs(['pin', pool.mountpoint, 'singularity/v0.1.0/a', 'v0.1.0/b.sif']);
  t.regex(pinned.stdout, /^2 images pinned/, pinned.stderr);
  const verified = await pool.tmaxfs([
    ...['verify', '--repo', 'org/listing', '--cache-dir', pool.cacheDirectory],
    ...['--variant', 'singularity/v0.1.0'],
  ]);
  t.regex(verified.stderr, /2 images on this disk proven again/);
});

test.serial('images that come to a repository are followed; a commit without any is not shown', async (t) => {
  const pool = await mountOf(t, 'org/listing', [repositoryOf('org/listing', [zero])], '--follow', '1s');
  const push = (digit: string, pushed: readonly FakeFile[]) =>
    pool.hub.repository('org/listing').push({ commit: digit.repeat(40), date: new Date(0), files: pushed });
  push('1', [zero, one]);
  await eventually(
    'the new image is shown',
    async () => (await pool.run('cat', [pool.path('images/1.sif')])).exitCode === 0 || undefined,
  );
  push('2', []);
  const failure = await eventually(
    'the commit is refused',
    async () => (await pool.status()).follow.failure ?? undefined,
  );
  t.regex(failure.message, /org\/listing@2{40} has no task_to_blob.json, no manifest.jsonl, no \*.sif/);
  t.is((await pool.status()).commit, '1'.repeat(40));
  t.is((await pool.run('cat', [pool.path('images/0.sif')])).exitCode, 0);
});

test.serial('the kind can be named, and what a repository is not is refused with words', async (t) => {
  const pool = await MountedPool.prepare(t, { files: [], tasks: {}, more: manifestPool() });
  const mount = (...words: string[]) =>
    pool.tmaxfs([...['mount', pool.mountpoint, '--repo', OWN, '--cache-dir', pool.cacheDirectory], ...words]);
  const missing = await mount('--catalog', 'task-map');
  t.is(missing.exitCode, 1);
  t.regex(
    missing.stderr,
    /has no task_to_blob.json: it is no pool of this form; it has manifest.jsonl: --catalog manifest shows it by that/,
  );
  const unnamed = await mount('--catalog', 'listing', '--name', '{task_id}.sif');
  t.is(unnamed.exitCode, 2);
  t.regex(unnamed.stderr, /--name takes fields from the rows of a manifest, and --catalog says listing/);
  const listed = await mount('--catalog', 'listing');
  t.is(listed.exitCode, 0, listed.stderr);
  t.deepEqual(await listOf(pool, 'images'), ['0.sif', '1.sif']);
});

test.serial('a branch without its manifest is not shown in another form; one with a better manifest is', async (t) => {
  const pool = await mountOf(t, OWN, manifestPool(ROWS.slice(0, 1)));
  const push = (digit: string, pushed: readonly FakeFile[]) =>
    pool.hub.repository(OWN).push({ commit: digit.repeat(40), date: new Date('2026-05-06T07:08:09Z'), files: pushed });
  push('1', [zero, one]);
  const refused = await pool.tmaxfs(['reload', pool.mountpoint]);
  t.is(refused.exitCode, 1);
  t.regex(refused.stderr, /has no manifest.jsonl any more, by which it was shown until now/);
  t.deepEqual(await listOf(pool, 'images'), ['zero.sif']);

  await pool.tmaxfs(['unmount', pool.mountpoint]);
  await pool.mount();
  t.deepEqual(await listOf(pool, 'images'), ['zero.sif'], 'nor after a restart');
  t.regex((await pool.status()).follow.failure?.message ?? '', /no manifest.jsonl any more/);

  push('2', [manifestFile(ROWS), zero, one]);
  t.regex((await pool.tmaxfs(['reload', pool.mountpoint])).stdout, /now shows org\/manifest@2{40}/);
  // The kernel may show what it knows for some seconds.
  const shown = await eventually('the new names are shown', async () => {
    const names = await listOf(pool, 'images');
    return names.length > 1 ? names : undefined;
  });
  t.deepEqual(shown, ['one.sif', 'two.sif', 'zero.sif']);
});

test.serial('a start without the network shows a manifest as it was, with the images that are on disk', async (t) => {
  const pool = await mountOf(t, OWN, manifestPool(), '--name', '{split}/{task_id}.sif');
  t.is(await sha256Of(pool, 'hard/two.sif'), two.sha256);
  await pool.tmaxfs(['unmount', pool.mountpoint]);
  await pool.hub.close();
  const offline = await pool.tmaxfs([...pool.mountCommand, '--offline']);
  t.is(offline.exitCode, 0, offline.stderr);
  t.is(await sha256Of(pool, 'hard/two.sif'), two.sha256);
});
