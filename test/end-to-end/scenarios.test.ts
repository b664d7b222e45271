import { readFile } from 'node:fs/promises';
import { constants } from 'node:os';
import test, { type ExecutionContext } from 'ava';
import fc from 'fast-check';
import type { Fault } from '../../src/demo/fake-hub-faults.js';
import { type FakeFile, fileOf } from '../../src/demo/fake-hub-repository.js';
import { MountedPool, POOL_NAME } from '../support/mounted-pool.js';
import { packagePath } from '../support/paths.js';
import { readScenarios, type Scenario } from '../support/scenario.js';
import { tinyImage } from '../support/sif-writer.js';

/** Short, so that a fault is noticed soon; long enough for a machine with other things to do. */
const DEADLINES = ['--first-byte-timeout', '4', '--idle-timeout', '4', '--min-speed', '16K'];
const PAYLOAD_BYTES = 300_000;

const scenarios = readScenarios();
const files = new Map<string, FakeFile>(
  scenarios.map(({ name }, seed) => [name, fileOf(`images/${name}.sif`, tinyImage(seed, PAYLOAD_BYTES))]),
);
const tasks = { v: Object.fromEntries([...files].map(([name, { path }]) => [name, path])) };
let shared: Promise<MountedPool> | undefined;

test.serial.before((t) => {
  t.timeout(120_000);
});

/** The mount that scenarios without wishes of their own share: their faults are about their own image alone. */
function mountFor(t: ExecutionContext, scenario: Scenario): Promise<MountedPool> {
  const start = (lifetime: Pick<ExecutionContext, 'teardown'>, args: readonly string[]) =>
    MountedPool.start(lifetime as ExecutionContext, {
      files: [...files.values()],
      tasks,
      args: [...DEADLINES, ...args],
    });
  if (scenario.mount.length > 0 || scenario.mainMoves) return start(t, scenario.mount);
  shared ??= start({ teardown: (end) => void endings.push(end) }, []);
  return shared;
}
const endings: (() => unknown)[] = [];
test.after.always(async () => {
  for (const end of endings.reverse()) await end();
});

for (const scenario of scenarios) {
  const { name, behaviour, faults, expect, withinSeconds, requests, mainMoves } = scenario;
  test.serial(`${name}: ${behaviour}`, async (t) => {
    t.timeout(120_000 + withinSeconds * 1000);
    const pool = await mountFor(t, scenario);
    const file = files.get(name);
    if (file === undefined) throw new Error('every scenario has an image');
    if (mainMoves) pool.hub.repository(POOL_NAME).push({ commit: 'f'.repeat(40), date: new Date(), files: [] });
    const installed = faults.map((fault) => pool.hub.fault({ ...fault, path: file.path }));

    const { outcome, seconds } = await open(pool, `v/${name}.sif`);
    t.is(outcome, expect === 'right' ? file.sha256 : expect);
    t.true(seconds <= withinSeconds, `${seconds} s`);
    t.true(
      installed.every(({ hits }) => hits > 0),
      'each fault has struck',
    );
    for (const server of ['hub', 'cdn'] as const) {
      const seen = pool.hub.requests.about(file.path, server);
      const wanted = requests[server];
      if (wanted !== undefined)
        t.is(seen.length, wanted, seen.map(({ url, headers }) => `${url} ${headers.range}`).join('\n'));
      t.true(seen.every(({ method }) => method === 'GET'));
    }
    for (const fault of installed) fault.remove();
  });
}

/** The sha256 of what an open reads, or the errno that it ends with, and how long that took. */
async function open(pool: MountedPool, path: string): Promise<{ outcome: string; seconds: number }> {
  const program = `
    const started = performance.now();
    const done = (outcome) => console.log(JSON.stringify({ outcome, seconds: (performance.now() - started) / 1000 }));
    try { done(require('node:crypto').createHash('sha256').update(require('node:fs').readFileSync(process.argv[1])).digest('hex')); }
    catch (error) { done(error.code); }`;
  const { stdout } = await pool.run(process.execPath, ['-e', program, pool.path(path)]);
  const { outcome, seconds }: { outcome: string; seconds: number } = JSON.parse(stdout);
  return { outcome: UNNAMED.get(outcome) ?? outcome, seconds };
}

/** Errnos that Node has no name for. */
const UNNAMED = new Map([[`Unknown system error -${constants.errno.EBADMSG}`, 'EBADMSG']]);

test('the scenarios cover every kind of fault that a Hub is known for, once and twice in a row', async (t) => {
  const source = await readFile(packagePath('src', 'demo', 'fake-hub-faults.ts'), 'utf8');
  const union = source.slice(source.indexOf('export type Fault ='), source.indexOf('export interface FaultRule'));
  const kinds = [...union.matchAll(/readonly kind: '([a-z-]+)'/g)].map(([, kind]) => String(kind));
  t.true(kinds.length > 12);
  for (const kind of kinds) {
    const struck = scenarios.flatMap(({ faults }) => faults).filter(({ fault }) => fault.kind === kind);
    t.true(
      struck.some(({ requests }) => requests.length === 1),
      `${kind} once`,
    );
    t.true(
      struck.some(({ requests }) => requests.length > 1),
      `${kind} more often`,
    );
  }
});

test.serial(
  'one fault after another, by a random schedule: 24 opens end in the right bytes or in a proper errno',
  async (t) => {
    t.timeout(300_000);
    const images = Array.from({ length: 24 }, (_, seed) =>
      fileOf(`r/${seed}.sif`, tinyImage(900 + seed, PAYLOAD_BYTES)),
    );
    const map = { v: Object.fromEntries(images.map(({ path }, index) => [`t${index}`, path])) };
    const pool = await MountedPool.start(t, { files: images, tasks: map, args: DEADLINES });
    const kinds: readonly Fault[] = scenarios.flatMap(({ faults }) => faults.map(({ fault }) => fault));
    const someFaults = fc.array(
      fc.record({
        fault: fc.constantFrom(...kinds.filter(({ kind }) => kind !== 'slow')),
        server: fc.constantFrom('hub' as const, 'cdn' as const, 'cdn' as const),
        requests: fc.uniqueArray(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 3 }),
      }),
      { maxLength: 4 },
    );
    const seed = Date.now() % 2 ** 31;
    t.log(`seed ${seed}`);
    const schedules = fc.sample(someFaults, { seed, numRuns: images.length });
    for (const [index, rules] of schedules.entries()) {
      for (const rule of rules) pool.hub.fault({ ...rule, path: images[index]?.path ?? '' });
    }
    const ends = await Promise.all(images.map((_, index) => open(pool, `v/t${index}.sif`)));
    const errnos = new Set(['EBADMSG', 'EACCES', 'ENOENT', 'EHOSTUNREACH', 'EIO']);
    for (const [index, { outcome, seconds }] of ends.entries()) {
      const isProper = outcome === images[index]?.sha256 || errnos.has(outcome);
      t.true(isProper, `${outcome} after ${JSON.stringify(schedules[index])}`);
      t.true(seconds < 120, `${seconds} s`);
    }
    t.true(ends.filter(({ outcome }) => outcome.length === 64).length >= 8, 'most are right');
  },
);
