import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { execa } from 'execa';
import { type CommandResult, resultOf } from '../support/command.js';
import { packagePath } from '../support/paths.js';
import { temporaryFolder } from '../support/temporary.js';

function tmaxfs(args: readonly string[], env: Record<string, string> = {}): Promise<CommandResult> {
  return resultOf(
    execa(process.execPath, [packagePath('bin', 'tmaxfs.js'), ...args], {
      env: { PATH: process.env['PATH'] ?? '', ...env },
      extendEnv: false,
      reject: false,
      timeout: 60_000,
    }),
  );
}

test('--help names every command and exits with 0', async (t) => {
  const { exitCode, stdout } = await tmaxfs(['--help']);
  t.is(exitCode, 0);
  for (const command of [
    'mount',
    'unmount',
    'reload',
    'status',
    'coverage',
    'verify',
    'prefetch',
    'seed',
    'pin',
    'unpin',
    'evict',
    'cache',
    'doctor',
    'probe',
    'bugreport',
    'rewrite',
    'completion',
    'demo',
  ]) {
    t.regex(stdout, new RegExp(`^  ${command} `, 'm'));
  }
});

test('mount --help names every option of the contract with its default', async (t) => {
  const { exitCode, stdout } = await tmaxfs(['mount', '--help'], { COLUMNS: '200' });
  t.is(exitCode, 0);
  const words = stdout.replaceAll(/\s+/g, ' ');
  for (const [option, fallback] of [
    ['--repo', 'wAI-org/tmax-image-pool'],
    ['--revision', 'main'],
    ['--cache-dir', 'XDG_CACHE_HOME'],
    ['--cache-size', '200G'],
    ['--reserve-free', '5%'],
    ['--verify', 'structure'],
    ['--verify-threads', ''],
    ['--arch', 'any'],
    ['--scrub', '30d'],
    ['--source', 'hub'],
    ['--open-timeout', '540'],
    ['--connections', '4'],
    ['--max-fetches', '8'],
    ['--connect-timeout', '10'],
    ['--first-byte-timeout', '30'],
    ['--idle-timeout', '20'],
    ['--min-speed', '16K'],
    ['--follow', 'off'],
    ['--driver', 'auto'],
    ['--allow-other', ''],
    ['--uid', ''],
    ['--gid', ''],
    ['--offline', ''],
    ['--metrics-port', 'off'],
    ['--control-group', 'none'],
    ['--foreground', ''],
    ['--log-level', 'info'],
  ] as const) {
    const described = words.slice(words.indexOf(` ${option} `)).split(' --')[1] ?? '';
    t.true(words.includes(` ${option} `), option);
    t.true(described.includes(fallback), `${option}: ${described}`);
  }
});

test('verify --help names every option of the contract', async (t) => {
  const { exitCode, stdout } = await tmaxfs(['verify', '--help'], { COLUMNS: '200' });
  t.is(exitCode, 0);
  for (const option of ['variant', 'task', 'level', 'jsonl', 'jobs', 'retry', 'cache-dir', 'repo', 'revision']) {
    t.regex(stdout, new RegExp(`^  --${option} `, 'm'));
  }
});

for (const args of [
  ['nonsense'],
  ['mount'],
  ['mount', '/x', '--nonsense'],
  ['mount', '/x', '--verify', 'maybe'],
  ['mount', '/x', '--repo', 'no-slash'],
  ['mount', '/x', '--cache-size', 'much'],
  ['mount', '/x', '--connections', '0'],
  ['mount', '/x', '--min-speed', 'fast'],
  ['mount', '/x', '--metrics-port', '65536'],
  ['prefetch', '/x'],
  ['seed', '--variant', 'v'],
  ['seed', '--to', 'dir:/x'],
  ['seed', '--to', 'hub', '--variant', 'v'],
  ['pin', '/x'],
  ['evict', '/x', ''],
  ['unpin'],
  ['cache'],
  ['cache', 'nonsense'],
  ['cache', 'ls', '--nonsense'],
  ['unmount'],
  ['mount', '/x', '--arch', 'amd64'],
  ['mount', '/x', '--scrub', 'sometimes'],
  ['verify', '--level', 'maybe'],
  ['verify', '--jobs', '0'],
]) {
  test(`wrong usage exits with 2 and says what was expected: ${args.join(' ')}`, async (t) => {
    const { exitCode, stderr } = await tmaxfs(args);
    t.is(exitCode, 2);
    t.true(stderr.length > 20, stderr);
  });
}

for (const [what, prepare, words] of [
  ['that is not there', () => undefined, /does not exist/],
  ['that is a file', (path: string) => writeFileSync(path, ''), /not a directory/],
  [
    'that is not empty',
    (path: string) => {
      mkdirSync(path);
      writeFileSync(join(path, 'x'), '');
    },
    /not empty/,
  ],
] as const) {
  test(`a mount point ${what} is refused with exit code 1 before the network is asked`, async (t) => {
    const folder = temporaryFolder(t);
    const path = join(folder, 'tmax');
    prepare(path);
    // Nothing listens there; asking it would fail with other words.
    const env = { HOME: folder, XDG_RUNTIME_DIR: folder, HF_ENDPOINT: 'http://127.0.0.1:9' };
    const { exitCode, stderr } = await tmaxfs(['mount', path, '--log-file', join(folder, 'log')], env);
    t.is(exitCode, 1);
    t.regex(stderr, words);
  });
}

for (const command of ['status', 'coverage', 'reload']) {
  test(`${command} of a folder that is no mount exits with 1 and says how to start one`, async (t) => {
    const { exitCode, stderr } = await tmaxfs([command, temporaryFolder(t)]);
    t.is(exitCode, 1);
    t.regex(stderr, /no tmaxfs daemon.*tmaxfs mount/);
  });
}

test('unmount touches nothing that is not tmaxfs', async (t) => {
  const { exitCode, stderr } = await tmaxfs(['unmount', '/proc', '--lazy']);
  t.is(exitCode, 1);
  t.regex(stderr, /no tmaxfs is mounted/);
  t.true(existsSync('/proc/self'));
});

test('an environment twin sets its option, and a flag wins over it', async (t) => {
  const folder = temporaryFolder(t);
  const byTwin = await tmaxfs(['mount', folder], { TMAXFS_VERIFY: 'maybe' });
  t.is(byTwin.exitCode, 2);
  t.regex(byTwin.stderr, /maybe/);
  const byFlag = await tmaxfs(['mount', folder, '--repo', 'still-wrong'], { TMAXFS_REPO: 'also-wrong' });
  t.regex(byFlag.stderr, /still-wrong/);
});

test('an empty twin counts as unset', async (t) => {
  const folder = temporaryFolder(t);
  const twins = ['CACHE_SIZE', 'CACHE_DIR', 'VERIFY', 'UID', 'LOG_FILE', 'OPEN_TIMEOUT', 'OFFLINE', 'ALLOW_OTHER'];
  const env = { HOME: folder, ...Object.fromEntries(twins.map((name) => [`TMAXFS_${name}`, ''])) };
  const { exitCode, stderr } = await tmaxfs(['mount', join(folder, 'absent')], env);
  t.is(exitCode, 1, 'all of the words were understood');
  t.regex(stderr, /does not exist/);
});

test('an empty path is wrong usage', async (t) => {
  const folder = temporaryFolder(t);
  for (const words of [
    ['mount', ''],
    ['mount', folder, '--cache-dir', ''],
    ['mount', folder, '--log-file', ''],
    ['unmount', ''],
  ]) {
    t.is((await tmaxfs(words, { HOME: folder })).exitCode, 2, words.join(' '));
  }
});
