import test from 'ava';
import { pino } from 'pino';
import type { Catalog } from '../../src/catalog/catalog.js';
import { CatalogFollower, type CatalogFollowerOptions } from '../../src/daemon/catalog-follower.js';
import { TmaxError } from '../../src/errors.js';
import { taskMapCatalog } from '../support/catalogs.js';

function catalogOf(digit: string): Catalog {
  const listing = [{ path: 'a.sif', sizeBytes: 1, sha256: digit.repeat(64) }];
  const taskMap = '{"v":{"one":"a.sif"}}';
  return taskMapCatalog({ repository: 'o/p', commit: digit.repeat(40), date: new Date(0), taskMap, listing });
}

const FIRST = catalogOf('1');
const SECOND = catalogOf('2');

function follow(
  load: CatalogFollowerOptions['load'],
  intervalMs?: number,
  more: Pick<CatalogFollowerOptions, 'failure' | 'catchUpMs'> = {},
) {
  const shown: string[] = [];
  const follower = new CatalogFollower({
    catalog: FIRST,
    load,
    show: ({ commit }) => shown.push(commit),
    intervalMs,
    ...more,
    log: pino({ level: 'silent' }),
  });
  return { follower, shown };
}

test('a new catalog is shown once, and is the one that the next look begins from', async (t) => {
  const begunFrom: string[] = [];
  const { follower, shown } = follow(async (current) => {
    begunFrom.push(current.commit);
    return SECOND;
  });
  t.is(await follower.reload(), SECOND);
  t.is(await follower.reload(), SECOND);
  t.deepEqual(shown, [SECOND.commit]);
  t.deepEqual(begunFrom, [FIRST.commit, SECOND.commit]);
  t.not(follower.report().changedAt, null);
});

test('a failure leaves what is shown, and is reported until a look succeeds', async (t) => {
  let failure: TmaxError | undefined = new TmaxError('EBADMSG', 'the map is not JSON');
  const { follower, shown } = follow(async (current) => {
    if (failure !== undefined) throw failure;
    return current;
  });
  await t.throwsAsync(follower.reload(), { message: 'the map is not JSON' });
  t.is(follower.catalog, FIRST);
  t.like(follower.report(), { failure: { errno: 'EBADMSG', message: 'the map is not JSON' }, changedAt: null });
  failure = undefined;
  await follower.reload();
  t.is(follower.report().failure, null);
  t.deepEqual(shown, []);
});

test('all who ask while a look is under way share it', async (t) => {
  let looks = 0;
  const { follower } = follow(async () => {
    looks += 1;
    return SECOND;
  });
  await Promise.all([follower.reload(), follower.reload()]);
  t.is(looks, 1);
});

test('one that follows looks by itself, again and again, also after a failure', async (t) => {
  let looks = 0;
  let seen = () => {};
  const enough = new Promise<void>((resolve) => {
    seen = resolve;
  });
  const { follower } = follow(async (current) => {
    looks += 1;
    if (looks === 3) seen();
    if (looks === 1) throw new TmaxError('EHOSTUNREACH', 'no answer');
    return current;
  }, 1);
  // The timer alone would not keep this process alive.
  const alive = setInterval(() => {}, 1000);
  await enough;
  clearInterval(alive);
  await follower.close();
  const after = looks;
  await new Promise((resolve) => setTimeout(resolve, 20));
  t.is(looks, after, 'closing ends it');
});

test('a start that had no answer is made up for as soon as there is one, and then it is left at that', async (t) => {
  let looks = 0;
  let seen = () => {};
  const caughtUp = new Promise<void>((resolve) => {
    seen = resolve;
  });
  const load = async (current: Catalog): Promise<Catalog> => {
    looks += 1;
    if (looks === 1) throw new TmaxError('EHOSTUNREACH', 'still no answer');
    seen();
    return looks === 2 ? SECOND : current;
  };
  const failure = { errno: 'EHOSTUNREACH', message: 'no answer' };
  const { follower, shown } = follow(load, undefined, { failure, catchUpMs: 1 });
  const alive = setInterval(() => {}, 1000);
  await caughtUp;
  clearInterval(alive);
  await new Promise((resolve) => setTimeout(resolve, 20));
  t.is(looks, 2);
  t.deepEqual(shown, [SECOND.commit]);
  t.is(follower.report().failure, null);
});

for (const errno of ['EBADMSG', 'EACCES'] as const) {
  test(`after a start that was answered (${errno}) nobody is asked unasked`, async (t) => {
    let looks = 0;
    const failure = { errno, message: 'no' };
    follow(
      async (current) => {
        looks += 1;
        return current;
      },
      undefined,
      { failure, catchUpMs: 1 },
    );
    await new Promise((resolve) => setTimeout(resolve, 20));
    t.is(looks, 0);
  });
}

test('closing calls off a look that is under way', async (t) => {
  const { follower, shown } = follow(
    (_, signal) =>
      new Promise((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(new TmaxError('EINTR', 'called off'))),
      ),
  );
  const look = t.throwsAsync(follower.reload(), { message: 'called off' });
  await follower.close();
  await look;
  t.is(follower.report().failure, null);
  t.deepEqual(shown, []);
});
