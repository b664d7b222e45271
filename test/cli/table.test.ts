import test from 'ava';
import { formatTable, printable } from '../../src/cli/table.js';

test('columns are as wide as their widest cell, also in a table of 200,000 rows', (t) => {
  const rows = Array.from({ length: 200_000 }, (_, index) => [`v${index}`, String(index)]);
  const lines = formatTable(['variant', 'tasks'], rows).split('\n');
  t.is(lines.length, 200_001);
  t.is(lines[1], 'v0            0');
  t.is(lines.at(-1), 'v199999  199999');
});

test('no text of a daemon can control the terminal', (t) => {
  t.is(printable('a\u001b[2Jb\u009bc\rd\nä'), 'a?[2Jb?c?d\nä');
});
