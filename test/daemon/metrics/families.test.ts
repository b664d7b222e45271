import { readFileSync } from 'node:fs';
import test from 'ava';
import { FAMILIES } from '../../../src/daemon/metrics/families.js';
import { packagePath } from '../../support/paths.js';

test('docs/METRICS.md names every metric with its type, and no other', (t) => {
  const rows = readFileSync(packagePath('docs', 'METRICS.md'), 'utf8').matchAll(/^\| `([a-z_]+)` \| (\w+) \|/gm);
  t.deepEqual(
    Array.from(rows, ([, name, type]) => ({ name, type })),
    FAMILIES.map(({ name, type }) => ({ name, type })),
  );
});

test('names say what they count in base units, and each is there once', (t) => {
  for (const { name, type } of FAMILIES) {
    t.regex(name, /^(tmaxfs|process)(_[a-z]+)+$/);
    t.is(name.endsWith('_total'), type === 'counter', name);
  }
  t.is(new Set(FAMILIES.map(({ name }) => name)).size, FAMILIES.length);
});
