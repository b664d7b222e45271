/** What each shell makes of the script that is meant for it. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { execa, execaSync } from 'execa';
import { packagePath } from '../support/paths.js';
import { temporaryFolder } from '../support/temporary.js';

function needs(shell: string): typeof test {
  return execaSync(shell, ['-c', 'exit 0'], { reject: false }).exitCode === 0 ? test : (test.skip as typeof test);
}

/** The file with the script for a shell. */
async function scriptFor(t: ExecutionContext, shell: string): Promise<string> {
  const { stdout } = await execa(process.execPath, [packagePath('bin', 'tmaxfs.js'), 'completion', shell]);
  const file = join(temporaryFolder(t), 'script');
  writeFileSync(file, `${stdout}\n`);
  return file;
}

/** What bash offers for the last of these words, as split by Readline. */
async function bashCompletes(file: string, ...words: string[]): Promise<string[]> {
  const script = `source ${file}
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tmaxfs
    printf '%s\\n' "\${COMPREPLY[@]}"; complete -p tmaxfs`;
  const { stdout } = await execa('bash', ['-uc', script, 'bash', ...words], { cwd: '/' });
  const lines = stdout.split('\n').filter(Boolean);
  if (lines.pop() !== 'complete -o filenames -F _tmaxfs tmaxfs') throw new Error(stdout);
  return lines;
}

test('bash completes commands, options, choices and folders', async (t) => {
  const file = await scriptFor(t, 'bash');
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'unm'), ['unmount']);
  t.true((await bashCompletes(file, 'tmaxfs', '')).includes('coverage'));
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'mount', '--cache-'), ['--cache-dir', '--cache-size']);
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'mount', '--driver', 'k'), ['kernel']);
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'mount', '--driver', '=', 'fu'), ['fuse-native']);
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'mount', '--driver', '='), ['auto', 'kernel', 'fuse-native']);
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'unmount', '/et'), ['/etc']);
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'mount', '--cache-dir', '/et'), ['/etc']);
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'mount', '--cache-size', '/et'), [], 'a size is no path');
  t.deepEqual(await bashCompletes(file, 'tmaxfs', 'nonsense', '--x'), []);
});

needs('fish')('fish completes commands, options with their description, and choices', async (t) => {
  const file = await scriptFor(t, 'fish');
  const fishCompletes = async (words: string) => {
    const { stdout } = await execa('fish', ['--no-config', '-c', `source ${file}; complete -C '${words}'`], {
      cwd: '/',
    });
    return stdout.split('\n');
  };
  t.deepEqual(await fishCompletes('tmaxfs unm'), ['unmount\tunmount and end the daemon']);
  t.deepEqual(await fishCompletes('tmaxfs mount --offl'), ['--offline\tserve what is on this disk, ask no network']);
  t.deepEqual(
    (await fishCompletes('tmaxfs mount --driver ')).map((line) => line.split('\t')[0]),
    ['auto', 'fuse-native', 'kernel'],
  );
  t.deepEqual(
    (await fishCompletes('tmaxfs unmount /et')).map((line) => line.split('\t')[0]),
    ['/etc/'],
  );
});

needs('zsh')('zsh takes its script, and knows what completes tmaxfs', async (t) => {
  const script = `autoload -U compinit; compinit -D; source ${await scriptFor(t, 'zsh')}; print $_comps[tmaxfs]`;
  const { stdout, stderr } = await execa('zsh', ['-f', '-c', script]);
  t.is(stderr, '');
  t.is(stdout, '_tmaxfs');
});

test('another shell is refused by name', async (t) => {
  const { exitCode, stderr } = await execa(process.execPath, [packagePath('bin', 'tmaxfs.js'), 'completion', 'csh'], {
    reject: false,
  });
  t.is(exitCode, 2);
  t.regex(String(stderr), /csh.*bash, zsh, fish/);
});
