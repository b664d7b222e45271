import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { CatalogStore } from '../../src/catalog/catalog-store.js';
import { type CatalogOrigin, loadCatalog } from '../../src/catalog/load-catalog.js';
import { TmaxError } from '../../src/errors.js';
import type { ListedFile } from '../../src/sources/hub-client.js';
import { temporaryFolder } from '../support/temporary.js';

const FIRST = '1'.repeat(40);
const SECOND = '2'.repeat(40);
const log = pino({ level: 'silent' });

/** A Hub reduced to what the catalog asks of it; `calls` counts what went over the network. */
class Origin implements CatalogOrigin {
  calls = 0;
  commit = FIRST;
  failure: TmaxError | undefined;

  async resolveRevision(_repository: string, revision: string) {
    this.#call();
    return { commit: /^[0-9a-f]{40}$/.test(revision) ? revision : this.commit, date: new Date('2026-01-02T03:04:05Z') };
  }

  async *listFiles(_repository: string, commit: string): AsyncGenerator<ListedFile, void, undefined> {
    this.#call();
    yield { path: 'a.sif', sizeBytes: 10, sha256: commit[0]?.repeat(64), gitObjectId: undefined };
    yield { path: 'task_to_blob.json', sizeBytes: 23, sha256: undefined, gitObjectId: undefined };
  }

  async readSmallFile() {
    this.#call();
    return Buffer.from('{"v":{"one":"a.sif"}}');
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
  const load = (revision: string, online = true) =>
    loadCatalog({
      repository: 'org/pool',
      revision,
      origin: online ? origin : undefined,
      store,
      log,
      signal: new AbortController().signal,
    });
  return { folder, origin, load };
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
