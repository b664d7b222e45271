import { once } from 'node:events';
import { readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import { makeFolder } from '../src/folders.js';
import { supportProgram } from './support/paths.js';
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

test('several may make one folder, and what is missing above it, at one moment', async (t) => {
  const workerData = { root: temporaryFolder(t), arrived: new SharedArrayBuffer(4), threads: 3, rounds: 300 };
  const threads = Array.from({ length: workerData.threads }, () => {
    const thread = new Worker(supportProgram('make-folders'), { workerData });
    return once(thread, 'exit');
  });
  for (const [exitCode] of await Promise.all(threads)) t.is(exitCode, 0);
  t.is(readdirSync(workerData.root).length, workerData.rounds);
});
