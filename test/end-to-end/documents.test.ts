/** docs/JSON.md is a promise: every field that a busy daemon prints is in it, and every field in it is printed. */

import { readFileSync } from 'node:fs';
import test from 'ava';
import { eventually } from '../support/mount-client.js';
import { MountedPool } from '../support/mounted-pool.js';
import { packagePath } from '../support/paths.js';
import { smallPool } from '../support/small-pool.js';
import { temporaryFolder } from '../support/temporary.js';

/** Objects whose keys are data. */
const OPEN_OBJECTS = new Set(['catalog.variants', 'kernel.requests']);

function fieldsOf(value: unknown, path = ''): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((entry) => fieldsOf(entry, `${path}[]`));
  if (typeof value !== 'object' || value === null) return [path];
  return Object.entries(value).flatMap(([key, inner]) => {
    if (OPEN_OBJECTS.has(path)) return [`${path}.{}`];
    return fieldsOf(inner, path === '' ? key : `${path}.${key}`);
  });
}

function documented(title: string): ReadonlySet<string> {
  const [, section = ''] = readFileSync(packagePath('docs', 'JSON.md'), 'utf8').split(`## \`${title}\`\n`);
  const rows = (section.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('| `'));
  const names = rows.flatMap((row) => Array.from(row.matchAll(/`([a-z][\w.[\]{}]*)`/gi), ([, name = '']) => name));
  return new Set(names);
}

test.serial('every field of status and coverage is documented', async (t) => {
  const { files, tasks } = smallPool(3);
  const options = {
    files,
    tasks: { ...tasks, v: { ...tasks['v'], lost: 'x.sif' } },
    args: ['--publish', `dir:${temporaryFolder(t)}`],
  };
  const pool = await MountedPool.start(t, options);
  pool.hub.fault({ server: 'cdn', path: 'images/0.sif', fault: { kind: 'corrupt', atByte: 9 }, requests: 'every' });
  await pool.run('cat', [pool.path('v/t0.sif')]);
  pool.hub.fault({ server: 'cdn', path: 'images/1.sif', fault: { kind: 'stall' }, requests: 'every' });
  const waiting = pool.spawn(['cat', pool.path('v/t1.sif')]);
  await eventually('it waits', async () => (await pool.status()).opens.waiting.length === 1 || undefined);
  const status = new Set(fieldsOf(await pool.status()));
  waiting.kill('SIGKILL');
  await waiting;
  for (const nullable of ['follow.failure', 'pools[].follow.failure', 'scrub']) status.delete(nullable);
  const inDocs = documented('tmaxfs status --json');
  const latency = (field: string) => field.replace(/^opens\.latency\.(hits|waited)\./, 'opens.latency.all.');
  t.deepEqual(
    [...status].filter((field) => !inDocs.has(latency(field))),
    [],
  );

  const input = 't0\nlost\nnothing\n';
  const json = async (args: readonly string[]): Promise<unknown> =>
    JSON.parse((await pool.tmaxfs(['coverage', pool.mountpoint, '--json', ...args], { input })).stdout);
  const coverage = new Set([...fieldsOf(await json([])), ...fieldsOf(await json(['--tasks', '-']))]);
  const coverageInDocs = documented('tmaxfs coverage --json');
  t.deepEqual(
    [...coverage].filter((field) => !coverageInDocs.has(field)),
    [],
  );

  // The other way round; what this daemon has had no occasion for is left out.
  const rare = /^((pools\[\]\.)?follow\.failure|publishing\[\]\.failure|variants\[\]\.refused\[\])(\.|$)/;
  const shown = new Set([...[...status].map(latency), ...coverage]);
  const promised = [...inDocs, ...coverageInDocs].filter((field) => /[.[]/.test(field) && !rare.test(field));
  t.deepEqual(
    promised.filter((field) => !shown.has(field) && ![...shown].some((one) => one.startsWith(`${field}.`))),
    [],
  );
});
