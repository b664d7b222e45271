import { existsSync, linkSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { fileOf } from '../../src/demo/fake-hub-repository.js';
import { MountedPool } from '../support/mounted-pool.js';
import { packagePath } from '../support/paths.js';
import { tinyImage } from '../support/sif-writer.js';
import { temporaryFolder } from '../support/temporary.js';

const TAG = (index: number) => index.toString(16).padStart(12, '0');
const TASK = (index: number) => `task_${String(index).padStart(6, '0')}_${index.toString(16).padStart(8, '0')}`;

/** Seven tasks as the published data sets have them; in "solvable", one shows an image derived from its own. */
function taskPool(t: ExecutionContext): Promise<MountedPool> {
  const plain = Array.from({ length: 7 }, (_, index) =>
    fileOf(`images/hamishi740__swerl-tmax-v3__${TAG(index)}.sif`, tinyImage(index, 5_000)),
  );
  const derived = fileOf('derived/x.sif', tinyImage(99, 5_000));
  const original = Object.fromEntries(plain.map(({ path }, index) => [TASK(index), path]));
  const tasks = { original, solvable: { ...original, [TASK(2)]: derived.path } };
  return MountedPool.start(t, { files: [...plain, derived], tasks });
}

const row = (index: number) =>
  `{"id": 1234567890123456789${index}, "env_config": {"image": "hamishi740/swerl-tmax-v3:${TAG(index)}", "x": 1.0}}`;

test.serial(
  'JSON lines are rewritten by their image tags, also to a derived image, and no image is opened',
  async (t) => {
    const pool = await taskPool(t);
    const input = join(pool.folder, 'in.jsonl');
    const output = join(pool.folder, 'out.jsonl');
    writeFileSync(input, `${[0, 2, 1].map(row).join('\n')}\n`);
    const args = ['rewrite', input, '--mount', pool.mountpoint, '--variant', 'solvable', '--output', output];
    const { exitCode, stdout, stderr } = await pool.tmaxfs(args);
    t.is(exitCode, 0, stderr);
    t.is(stdout, `3 rows: env_config.image names solvable of ${pool.mountpoint} now; written to ${output}`);
    const expected = [0, 2, 1].map((index) =>
      row(index).replace(/hamishi740[^"]*/, pool.path('solvable', `${TASK(index)}.sif`)),
    );
    t.is(readFileSync(output, 'utf8'), `${expected.join('\n')}\n`);
    for (const line of expected) {
      const { env_config: config } = JSON.parse(line) as { env_config: { image: string } };
      t.is((await pool.run('test', ['-f', config.image])).exitCode, 0);
    }
    t.is(pool.hub.requests.filter(({ server }) => server === 'cdn').length, 0);
    // Rows get the mount's path as it was given, not what a link stands for.
    const link = join(pool.folder, 'link');
    symlinkSync(pool.mountpoint, link);
    const linked = await pool.tmaxfs([...args.slice(0, 2), '--mount', link, ...args.slice(4)]);
    t.is(linked.exitCode, 0, linked.stderr);
    t.is(readFileSync(output, 'utf8'), `${expected.join('\n')}\n`.replaceAll(pool.mountpoint, link));
    // What was rewritten once can be pointed at another variant.
    const again = await pool.tmaxfs([
      'rewrite',
      output,
      '--mount',
      pool.mountpoint,
      '--variant',
      'original',
      '--output',
      output.replace('out', 'again'),
    ]);
    t.is(again.exitCode, 0, again.stderr);
    t.is(
      readFileSync(output.replace('out', 'again'), 'utf8'),
      readFileSync(output, 'utf8').replaceAll('/solvable/', '/original/').replaceAll(link, pool.mountpoint),
    );
  },
);

test.serial('Parquet is rewritten by task ids; the data set stays what it was', async (t) => {
  const pool = await taskPool(t);
  const input = packagePath('test', 'fixtures', 'datasets', 'zstd.parquet');
  const before = readFileSync(input);
  const output = join(pool.folder, 'out.parquet');
  const words = ['--mount', pool.mountpoint, '--variant', 'solvable', '--task-column', 'env_config.task_id'];
  const { exitCode, stderr } = await pool.tmaxfs(['rewrite', input, '--output', output, ...words]);
  t.is(exitCode, 0, stderr);
  const rows = await parquetReadObjects({
    file: await asyncBufferFromFile(output),
    compressors,
    columns: ['env_config'],
  });
  t.deepEqual(
    rows.map((one) => (one['env_config'] as { image: string }).image),
    Array.from({ length: 7 }, (_, index) => pool.path('solvable', `${TASK(index)}.sif`)),
  );
  t.true(readFileSync(input).equals(before));
});

test.serial(
  'one row that can’t be resolved: all such are listed, the exit code is 1, and nothing is written',
  async (t) => {
    const pool = await taskPool(t);
    const input = join(pool.folder, 'in.jsonl');
    const output = join(pool.folder, 'out.jsonl');
    const unknown = '{"env_config":{"image":"ubuntu:22.04"}}';
    writeFileSync(input, [row(0), unknown, row(1), '{"other":\u00201}', unknown].join('\n'));
    writeFileSync(output, 'what was there');
    const names = readdirSync(pool.folder);
    const { exitCode, stdout, stderr } = await pool.tmaxfs([
      'rewrite',
      input,
      '--mount',
      pool.mountpoint,
      '--variant',
      'solvable',
      '--output',
      output,
    ]);
    t.is(exitCode, 1);
    t.is(stdout, '');
    t.deepEqual(stderr.split('\n'), [
      'row 2: "ubuntu:22.04": neither a task of solvable, nor an image of one',
      'row 4: null: the row has no env_config.image',
      'row 5: "ubuntu:22.04": neither a task of solvable, nor an image of one',
      `3 of 5 rows can't be resolved; ${output} was not written`,
    ]);
    t.is(readFileSync(output, 'utf8'), 'what was there');
    t.deepEqual(readdirSync(pool.folder), names);
  },
);

test.serial(
  'the output is never the input, under whatever name, and usage is checked before anything is written',
  async (t) => {
    const pool = await taskPool(t);
    const input = join(pool.folder, 'in.jsonl');
    writeFileSync(input, `${row(0)}\n`);
    const folder = temporaryFolder(t);
    const [link, hardLink, linkedFolder] = [join(folder, 'link'), join(pool.folder, 'hard'), join(folder, 'folder')];
    symlinkSync(input, link);
    linkSync(input, hardLink);
    symlinkSync(pool.folder, linkedFolder);
    const rewrite = (args: readonly string[]) => pool.tmaxfs(['rewrite', '--mount', pool.mountpoint, ...args]);
    for (const output of [input, link, hardLink, join(linkedFolder, 'in.jsonl')]) {
      const { exitCode, stderr } = await rewrite([input, '--variant', 'solvable', '--output', output]);
      t.is(exitCode, 2, output);
      t.regex(stderr, /is the input itself/);
    }
    t.is((await rewrite([link, '--variant', 'solvable', '--output', input])).exitCode, 2);
    t.is(readFileSync(input, 'utf8'), `${row(0)}\n`);
    const output = join(folder, 'out');
    for (const [args, exitCode, words] of [
      [[input, '--output', output], 2, /--variant/],
      [[input, '--variant', 'solvable'], 2, /--output/],
      [
        [input, '--variant', 'nope', '--output', output],
        2,
        /no variant "nope"; it has original, pool, solvable|no variant "nope"/,
      ],
      [[input, '--variant', 'solvable', '--output', output, '--mount', 'tmax'], 2, /absolute path/],
      [[input, '--variant', 'solvable', '--output', output, '--mount', '/'], 1, /no tmaxfs is mounted on \//],
      [['/dev/null', '--variant', 'solvable', '--output', output], 2, /is no file/],
      [[join(folder, 'absent'), '--variant', 'solvable', '--output', output], 2, /can't be read/],
      [[input, '--variant', 'solvable', '--output', pool.path('out')], 1, /can't be written \(EROFS\)/],
      [[input, '--variant', 'solvable', '--output', folder], 2, /is no file/],
    ] as const) {
      const { exitCode: got, stderr } = await rewrite(args);
      t.is(got, exitCode, stderr);
      t.regex(stderr, words);
    }
    t.false(existsSync(output));
  },
);
