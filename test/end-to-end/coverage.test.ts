/** `tmaxfs coverage` as a preflight: of a list of tasks, for people and for scripts, with its exit codes. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import type { Coverage } from '../../src/daemon/coverage.js';
import { MountedPool } from '../support/mounted-pool.js';
import { smallPool } from '../support/small-pool.js';

const HOSTILE = 'a\u202e<b>$(x)';

async function startPool(t: Parameters<typeof MountedPool.start>[0]): Promise<MountedPool> {
  const { files, tasks } = smallPool(3);
  const lost = { ...tasks['v'], lost: 'images/lost.sif', [HOSTILE]: 'images/2.sif' };
  const pool = await MountedPool.start(t, { files, tasks: { v: lost, w: { t0: 'images/0.sif' } } });
  pool.hub.fault({ server: 'cdn', path: 'images/1.sif', fault: { kind: 'corrupt', atByte: 9 }, requests: 'every' });
  for (const task of ['t0', 't1']) await pool.run('cat', [pool.path(`v/${task}.sif`)]);
  return pool;
}

test.serial('only the tasks of a list are counted, and what is missing of them is named', async (t) => {
  const pool = await startPool(t);
  const list = join(pool.folder, 'tasks');
  writeFileSync(list, `v/t0   # the first\n\n${pool.path('v/t1.sif')}\n`);
  const complete = await pool.tmaxfs(['coverage', pool.mountpoint, '--tasks', list, '--json']);
  t.is(complete.exitCode, 0, complete.stderr);
  const { variants, ...totals } = JSON.parse(complete.stdout) as Coverage;
  t.like(totals, { blobs: 2, isComplete: true, unknown: [] });
  t.is(variants.length, 1);
  t.like(variants[0], { variant: 'v', tasks: 2, resolvable: 2, blobs: 2, readyBlobs: 1, quarantinedBlobs: 1 });

  const input = 't0\nlost\nno-such-task\n';
  const missing = await pool.tmaxfs(['coverage', pool.mountpoint, '--tasks', '-'], { input });
  t.is(missing.exitCode, 1);
  t.regex(missing.stdout, /^unresolvable: v\/lost: "images\/lost\.sif" is not in the repository$/m);
  t.regex(missing.stdout, /^unknown: no-such-task: no such task in the pool/m);
  t.regex(missing.stdout, /^w +1 +1 +0 +0 +1 .* 1 /m);

  t.is((await pool.tmaxfs(['coverage', pool.mountpoint, '--tasks', '-'], { input: '# nothing\n' })).exitCode, 2);
  t.is((await pool.tmaxfs(['coverage', pool.mountpoint, '--tasks', join(pool.folder, 'absent')])).exitCode, 2);
  t.is((await pool.tmaxfs(['coverage', pool.mountpoint, '--json', '--tsv'])).exitCode, 2);
});

test.serial('a mount that leaves something out says so, and which command names it', async (t) => {
  const { files, tasks } = smallPool(1);
  const pool = await MountedPool.prepare(t, { files, tasks: { v: { ...tasks['v'], lost: 'images/lost.sif' } } });
  const { exitCode, stdout } = await pool.tryMount();
  t.is(exitCode, 0);
  t.regex(stdout, new RegExp(`^warning: names or files left out of it: 1; "tmaxfs coverage ${pool.mountpoint}" `, 'm'));
});

test.serial('--tsv is one line a task, of seven fields, whatever the names hold', async (t) => {
  const pool = await startPool(t);
  const { exitCode, stdout } = await pool.tmaxfs(['coverage', pool.mountpoint, '--tsv']);
  t.is(exitCode, 1, 'one is unresolvable');
  const rows = stdout.split('\n').map((line) => line.split('\t'));
  t.deepEqual([...new Set(rows.map(({ length }) => length))], [7]);
  const states = rows.map(([variant, task, state]) => `${variant}/${task} ${state}`);
  t.deepEqual(states, [
    'v/t0 ready',
    'v/t1 quarantined',
    'v/t2 absent',
    `v/${HOSTILE} absent`,
    'v/lost unresolvable',
    'w/t0 ready',
  ]);
  const [, , , sizeBytes = '', sha256 = '', path, reason] = rows[0] ?? [];
  t.regex(`${sizeBytes} ${sha256}`, /^\d{6,} [0-9a-f]{64}$/);
  t.deepEqual([path, reason], ['images/0.sif', '']);
  t.regex(rows[1]?.[6] ?? '', /sha256/);
  const some = await pool.tmaxfs(['coverage', pool.mountpoint, '--tsv', '--tasks', '-'], { input: 'w/t0\nx\n' });
  t.deepEqual(
    some.stdout.split('\n').map((line) => line.split('\t').slice(0, 3)),
    [
      ['w', 't0', 'ready'],
      ['', 'x', 'unknown'],
    ],
  );
});
