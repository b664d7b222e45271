import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { makeFolder } from '../src/folders.js';
import { temporaryFolder } from './support/temporary.js';

test('what is missing above a folder is made too, and what is there is left as it is', (t) => {
  const path = join(temporaryFolder(t), 'a', 'b', 'c');
  makeFolder(path, 0o700);
  makeFolder(path);
  t.is(statSync(path).mode & 0o777, 0o700);
});

test('a file system where nothing can be made says so at once', (t) => {
  t.throws(() => makeFolder('/proc/tmaxfs/cache'), { message: /ENOENT/ });
});

test('a file in the way is an error', (t) => {
  const file = join(temporaryFolder(t), 'file');
  writeFileSync(file, '');
  t.throws(() => makeFolder(join(file, 'below')), { message: /ENOTDIR/ });
});
