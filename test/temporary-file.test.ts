import { readdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'ava';
import { removeLeftTemporaries, temporaryFor } from '../src/temporary-file.js';
import { temporaryFolder } from './support/temporary.js';

test('temporaries of processes that were killed are removed, those that may just be written are not', async (t) => {
  const folder = temporaryFolder(t);
  const [left, fresh] = [temporaryFor(join(folder, 'left')), temporaryFor(join(folder, 'fresh'))];
  const other = join(folder, 'other');
  for (const path of [left, fresh, other]) writeFileSync(path, 'x');
  const anHourAgo = new Date(Date.now() - 3_600_000);
  for (const path of [left, other]) utimesSync(path, anHourAgo, anHourAgo);
  symlinkSync(other, join(folder, 'link.tmp'));
  await removeLeftTemporaries(folder);
  t.deepEqual(readdirSync(folder).sort(), [fresh.slice(folder.length + 1), 'link.tmp', 'other']);
});
