import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import type { CatalogChoice } from '../../src/catalog/build-catalog.js';
import type { Catalog } from '../../src/catalog/catalog.js';
import { CatalogStore } from '../../src/catalog/catalog-store.js';
import { type CatalogOrigin, loadCatalog, reloadCatalog } from '../../src/catalog/load-catalog.js';
import { TmaxError } from '../../src/errors.js';
import type { ListedFile } from '../../src/sources/hub-client.js';
import { temporaryFolder } from '../support/temporary.js';

const FIRST = '1'.repeat(40);
const SECOND = '2'.repeat(40);
const GOOD_MAP = '{"v":{"one":"a.sif"}}';
const ROW = { id: 'one', sif_sha256: '1'.repeat(64), sif_bytes: 10, hf_path: 'a.sif' };
const log = pino({ level: 'silent' });

/** A Hub reduced to what the catalog asks of it; `calls` counts what went over the network. */
class Origin implements CatalogOrigin {
  calls = 0;
  commit = FIRST;
  failure: TmaxError | undefined;
  map = GOOD_MAP;
  images = ['a.sif'];
  /** Files outside LFS; the index is read from `map`. */
  small = ['task_to_blob.json'];
  /** Of another repository than the pool. */
  elsewhere: TmaxError | undefined;

  async resolveRevision(_repository: string, revision: string) {
    this.#call();
    return { commit: /^[0-9a-f]{40}$/.test(revision) ? revision : this.commit, date: new Date('2026-01-02T03:04:05Z') };
  }

  async *listFiles(repository: string, commit: string): AsyncGenerator<ListedFile, void, undefined> {
    this.#call();
    if (repository !== 'org/pool' && this.elsewhere !== undefined) throw this.elsewhere;
    const sha256 = commit[0]?.repeat(64);
    for (const path of this.images) yield { path, sizeBytes: 10, sha256, gitObjectId: undefined };
    for (const path of this.small) yield { path, sizeBytes: 23, sha256: undefined, gitObjectId: undefined };
  }

  async readSmallFile() {
    this.#call();
    return Buffer.from(this.map);
  }

  #call(): void {
    if (this.failure !== undefined) throw this.failure;
    this.calls += 1;
  }
}

function setUp(t: ExecutionContext) {
  const folder = temporaryFolder(t);
  const origin = new Origin();
  const store = new CatalogStore(folder);
  const options = (revision: string, online: boolean, choice?: CatalogChoice) => ({
    repository: 'org/pool',
    revision,
    choice,
    origin: online ? origin : undefined,
    store,
    log,
    signal: new AbortController().signal,
  });
  const load = (revision: string, online = true, choice?: CatalogChoice) =>
    loadCatalog(options(revision, online, choice));
  const reload = (revision: string, current: Catalog, online = true) =>
    reloadCatalog(options(revision, online), current);
  return { folder, origin, load, reload };
}

test('a branch is resolved once, and everything is pinned to its commit', async (t) => {
  const { origin, load } = setUp(t);
  const catalog = await load('main');
  t.is(catalog.commit, FIRST);
  t.deepEqual(catalog.date, new Date('2026-01-02T03:04:05Z'));
  t.is(catalog.variants.get('v')?.tasks.get('one')?.sha256, '1'.repeat(64));
  t.is(origin.calls, 3);
});

test('a second start at a commit needs no network, and neither does one offline at a branch seen before', async (t) => {
  const { origin, load } = setUp(t);
  const first = await load('main');
  const calls = origin.calls;
  t.deepEqual(await load(FIRST), first);
  t.deepEqual(await load('main', false), first);
  t.is(origin.calls, calls);
});

test('a branch that moved is another catalog; the old commit can still be mounted', async (t) => {
  const { origin, load } = setUp(t);
  await load('main');
  origin.commit = SECOND;
  t.is((await load('main')).commit, SECOND);
  t.is((await load(FIRST, false)).commit, FIRST);
});

test('a Hub that does not answer is replaced by the last known commit of the branch', async (t) => {
  const { origin, load } = setUp(t);
  await load('main');
  origin.failure = new TmaxError('EHOSTUNREACH', 'no answer');
  t.is((await load('main')).commit, FIRST);
});

for (const errno of ['EACCES', 'ENOENT'] as const) {
  test(`a Hub that says ${errno} is believed, whatever is on disk`, async (t) => {
    const { origin, load } = setUp(t);
    await load('main');
    origin.failure = new TmaxError(errno, 'no');
    t.is((await t.throwsAsync(load('main'), { instanceOf: TmaxError }))?.errno, errno);
  });
}

test('offline without anything on disk is EHOSTUNREACH and says what to do', async (t) => {
  const { load } = setUp(t);
  for (const revision of ['main', FIRST]) {
    const error = await t.throwsAsync(load(revision, false), { instanceOf: TmaxError });
    t.is(error?.errno, 'EHOSTUNREACH');
    t.regex(error?.message ?? '', /offline.*mount once with the network/);
  }
});

for (const damage of ['', '{"repository":"org/pool"', '[]', `{"repository":"x/y","commit":"${FIRST}"}`]) {
  test(`a stored catalog that reads ${damage || 'empty'} is fetched anew`, async (t) => {
    const { folder, origin, load } = setUp(t);
    mkdirSync(join(folder, 'org--pool'));
    writeFileSync(join(folder, 'org--pool', `${FIRST}.json`), damage);
    t.is((await load(FIRST)).variants.get('v')?.tasks.size, 1);
    t.true(origin.calls > 0);
  });
}

test('no more than eight catalogs of a repository are kept', async (t) => {
  const { folder, load } = setUp(t);
  for (let digit = 0; digit < 10; digit += 1) await load(String(digit).repeat(40));
  t.is(readdirSync(join(folder, 'org--pool')).length, 8);
});

test('a branch that moves to a commit that is no pool leaves the last good one, also after that', async (t) => {
  const { origin, load } = setUp(t);
  const first = await load('main');
  origin.commit = SECOND;
  for (const map of ['not JSON', '[]', '{}', '{"v":{"one":"b.sif"}}']) {
    origin.map = map;
    origin.images = [];
    t.deepEqual(await load('main'), first, map);
    t.deepEqual(await load('main', false), first, map);
  }
});

test('a first start at a commit that is no pool fails with what is wrong', async (t) => {
  const { origin, load } = setUp(t);
  origin.map = 'not JSON';
  t.is((await t.throwsAsync(load('main'), { instanceOf: TmaxError }))?.errno, 'EBADMSG');
});

test('a reload of a branch that has not moved costs one question, and gives the same catalog', async (t) => {
  const { origin, load, reload } = setUp(t);
  const first = await load('main');
  const calls = origin.calls;
  t.is(await reload('main', first), first);
  t.is(origin.calls, calls + 1);
  t.is(await reload(FIRST, first), first);
  t.is(origin.calls, calls + 1, 'a commit is not asked for');
});

test('a reload shows what the branch has become, and nothing that is bad or out of reach', async (t) => {
  const { origin, load, reload } = setUp(t);
  const first = await load('main');
  origin.commit = SECOND;
  origin.map = '[]';
  t.is((await t.throwsAsync(reload('main', first), { instanceOf: TmaxError }))?.errno, 'EBADMSG');
  origin.failure = new TmaxError('EHOSTUNREACH', 'no answer');
  t.is((await t.throwsAsync(reload('main', first), { instanceOf: TmaxError }))?.errno, 'EHOSTUNREACH');
  const offline = await t.throwsAsync(reload('main', first, false), { instanceOf: TmaxError });
  t.regex(offline?.message ?? '', /^offline/);
  t.deepEqual(await load('main', false), first, 'what was bad is not remembered');
  origin.failure = undefined;
  origin.map = GOOD_MAP;
  t.is((await reload('main', first)).commit, SECOND);
});

test('what a repository is shown by is what its files say: map, manifest, images, in this order', async (t) => {
  const { origin, load } = setUp(t);
  origin.small = ['manifest.jsonl', 'task_to_blob.json'];
  t.is((await load('0'.repeat(40))).kind, 'task-map');
  origin.small = ['manifest.jsonl', 'README.md'];
  origin.map = JSON.stringify(ROW);
  t.is((await load(FIRST)).kind, 'manifest');
  origin.small = ['deep/manifest.jsonl'];
  t.is((await load(SECOND)).kind, 'listing');
  origin.images = [];
  const error = await t.throwsAsync(load('3'.repeat(40)), { instanceOf: TmaxError });
  t.is(error?.errno, 'ENOENT');
  t.regex(error?.message ?? '', /has no task_to_blob.json, no manifest.jsonl, no \*.sif: it is no pool of this form$/);
});

test('a kind that the repository is not is refused with the kind that it is', async (t) => {
  const { origin, load } = setUp(t);
  for (const [small, choice, words] of [
    [['manifest.jsonl'], 'task-map', /has no task_to_blob.json: .*; it has manifest.jsonl: --catalog manifest /],
    [['task_to_blob.json'], 'manifest', /has no manifest.jsonl: .*; it has task_to_blob.json: --catalog task-map /],
    [[], 'manifest', /has no manifest.jsonl: .*; it has \*.sif: --catalog listing /],
  ] as const) {
    origin.small = [...small];
    const error = await t.throwsAsync(load('main', true, choice), { instanceOf: TmaxError });
    t.is(error?.errno, 'ENOENT');
    t.regex(error?.message ?? '', words);
  }
});

test('each kind of one commit is on disk for itself, and none is taken for another', async (t) => {
  const { folder, origin, load } = setUp(t);
  t.is((await load('main', true, 'listing')).kind, 'listing');
  const offline = await t.throwsAsync(load('main', false), { instanceOf: TmaxError });
  t.regex(
    offline?.message ?? '',
    /offline, and the catalog of .* is not on this disk/,
    'the images alone are not its map',
  );
  t.is((await load('main')).kind, 'task-map');
  const calls = origin.calls;
  t.is((await load('main', false)).kind, 'task-map');
  t.is((await load('main', false, 'listing')).kind, 'listing');
  t.is((await load(FIRST)).kind, 'task-map');
  const manifest = await t.throwsAsync(load('main', false, 'manifest'), { instanceOf: TmaxError });
  t.regex(manifest?.message ?? '', /offline, and the manifest of/);
  t.is(origin.calls, calls);
  t.deepEqual(readdirSync(join(folder, 'org--pool')).sort(), [
    `${FIRST}.json`,
    `${FIRST}.listing.json`,
    'revisions.json',
  ]);
});

test('revisions of one repository that are loaded at one time are all remembered', async (t) => {
  const { load } = setUp(t);
  const revisions = ['main', 'v1', 'v2', 'v3', 'v4'];
  await Promise.all(revisions.map((revision) => load(revision)));
  for (const revision of revisions) t.is((await load(revision, false)).commit, FIRST, revision);
});

test('a manifest comes back from the disk with what it names in other repositories', async (t) => {
  const { origin, load } = setUp(t);
  origin.small = ['manifest.jsonl'];
  origin.map = JSON.stringify({ ...ROW, sif_sha256: '2'.repeat(64), hf_repo: 'org/other', hf_revision: SECOND });
  const first = await load(FIRST);
  t.is(first.variants.get('images')?.tasks.get('one')?.repository, 'org/other');
  t.deepEqual(await load(FIRST, false), first);
});

for (const errno of ['EACCES', 'ENOENT'] as const) {
  test(`a manifest that names a repository of which the Hub says ${errno} is not shown: the last good commit is`, async (t) => {
    const { origin, load, reload } = setUp(t);
    origin.small = ['manifest.jsonl'];
    origin.map = JSON.stringify(ROW);
    const first = await load('main');
    origin.commit = SECOND;
    origin.elsewhere = new TmaxError(errno, 'says no');
    origin.map = JSON.stringify({ ...ROW, sif_sha256: '2'.repeat(64), hf_repo: 'org/other', hf_revision: SECOND });
    const error = await t.throwsAsync(reload('main', first), { instanceOf: TmaxError });
    t.regex(error?.message ?? '', /^org\/other@2{40} can't be had, where org\/pool@2{40} has 1 image: says no/);
    t.deepEqual(await load('main'), first);
    await t.throwsAsync(load(SECOND), { message: /can't be had/ });
    origin.elsewhere = undefined;
    t.is((await load('main')).commit, SECOND);
  });
}

test('a repository that does not answer, of those that a manifest names, leaves nothing behind: it is asked again', async (t) => {
  const { origin, load } = setUp(t);
  origin.small = ['manifest.jsonl'];
  origin.map = JSON.stringify({ ...ROW, hf_repo: 'org/other', hf_revision: FIRST });
  origin.elsewhere = new TmaxError('EHOSTUNREACH', 'no answer');
  t.is((await t.throwsAsync(load('main'), { instanceOf: TmaxError }))?.errno, 'EHOSTUNREACH');
  origin.elsewhere = undefined;
  t.is((await load('main')).variants.get('images')?.tasks.size, 1);
});
