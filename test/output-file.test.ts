import { once } from 'node:events';
import { linkSync, readdirSync, readFileSync, readlinkSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import test from 'ava';
import { execa } from 'execa';
import { OutputFile } from '../src/output-file.js';
import { packagePath } from './support/paths.js';
import { temporaryFolder } from './support/temporary.js';

test('a file appears whole, when it is committed, with the mode that was asked for', async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'out');
  const file = await OutputFile.create(path, { mode: 0o600 });
  await file.write(Buffer.from('one '));
  await file.write(Buffer.from('two'));
  t.throws(() => statSync(path), { code: 'ENOENT' });
  await file.commit();
  t.is(readFileSync(path, 'utf8'), 'one two');
  t.is(statSync(path).mode & 0o777, 0o600);
  t.deepEqual(readdirSync(folder), ['out']);
});

test('what is discarded leaves nothing, and what was there before is as it was', async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'out'), 'before');
  const file = await OutputFile.create(join(folder, 'out'));
  await file.write(Buffer.from('after'));
  await file.discard();
  t.is(readFileSync(join(folder, 'out'), 'utf8'), 'before');
  t.deepEqual(readdirSync(folder), ['out']);
});

test('a link is followed, and stays', async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'target'), '');
  symlinkSync('target', join(folder, 'link'));
  const file = await OutputFile.create(join(folder, 'link'));
  await file.write(Buffer.from('x'));
  await file.commit();
  t.is(readlinkSync(join(folder, 'link')), 'target');
  t.is(readFileSync(join(folder, 'target'), 'utf8'), 'x');
});

test('the input under another name, and what is no file, are refused', async (t) => {
  const folder = temporaryFolder(t);
  const input = join(folder, 'in');
  writeFileSync(input, '');
  linkSync(input, join(folder, 'hard'));
  for (const output of [input, join(folder, 'hard')]) {
    await t.throwsAsync(OutputFile.create(output, { input }), { message: /is the input itself/ });
  }
  await t.throwsAsync(OutputFile.create(folder), { message: /is no file/ });
  t.deepEqual(readdirSync(folder).sort(), ['hard', 'in']);
});

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  test(`a process that is ended by ${signal} leaves no half of a file, and ends by it`, async (t) => {
    const folder = temporaryFolder(t);
    const module = pathToFileURL(packagePath('build', 'src', 'output-file.js')).href;
    const script = `
      const { OutputFile } = await import(${JSON.stringify(module)});
      const file = await OutputFile.create(${JSON.stringify(join(folder, 'out'))});
      await file.write(Buffer.from('half'));
      process.stdout.write('written');
      setInterval(() => undefined, 1000);`;
    const child = execa(process.execPath, ['--input-type=module', '-e', script], { reject: false, timeout: 60_000 });
    await once(child.stdout, 'data');
    t.is(readdirSync(folder).length, 1);
    child.kill(signal);
    t.is((await child).signal, signal);
    t.deepEqual(readdirSync(folder), []);
  });
}
