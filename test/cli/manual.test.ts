import { readFileSync } from 'node:fs';
import test from 'ava';
import { execa, execaSync } from 'execa';
import { program } from '../../src/cli/main.js';
import { version } from '../../src/version.js';
import { manualPage } from '../../tools/manual-page.js';
import { packagePath } from '../support/paths.js';

const PAGE = packagePath('docs', 'man', 'tmaxfs.1');
const hasMandoc = execaSync('mandoc', [PAGE], { reject: false }).exitCode === 0;

test('the manual page is what the commands say of themselves now (npm run docs)', (t) => {
  t.is(readFileSync(PAGE, 'utf8'), manualPage({ program: program(), version }));
});

for (const page of ['tmaxfs.1', 'mount.tmaxfs.8']) {
  (hasMandoc ? test : test.skip)(`${page} is well formed`, async (t) => {
    const { stdout, exitCode } = await execa('mandoc', ['-Tlint', '-Wwarning', packagePath('docs', 'man', page)], {
      reject: false,
    });
    t.is(stdout, '');
    t.is(exitCode, 0);
  });
}

(hasMandoc ? test : test.skip)('every option of every command can be read in it', async (t) => {
  const { stdout } = await execa('mandoc', ['-Tascii', PAGE]);
  // Overstruck, for bold and underlined.
  const text = stdout.replaceAll(/.\u0008/g, '');
  const words = text.replaceAll(/\s+/g, ' ');
  const options = program().commands.flatMap((command) => command.options.map(({ flags }) => flags));
  t.true(options.length > 40);
  for (const flags of options) t.true(text.includes(`       ${flags}`), flags);
  t.regex(
    words,
    /--cache-size <size> Most that the cache may hold[^.]*\. Default: 200G\. Variable: TMAXFS_CACHE_SIZE\./,
  );
});
