import test from 'ava';
import {
  bytesOf,
  formatBytes,
  formatMilliseconds,
  parseAmount,
  parseBytes,
  parseDurationMs,
} from '../../src/daemon/amount.js';

for (const [text, bytes] of [
  ['0', 0],
  ['1048576', 1_048_576],
  ['200G', 200 * 2 ** 30],
  ['1.5T', 1.5 * 2 ** 40],
  ['64 MiB', 64 * 2 ** 20],
  ['10kb', 10 * 1024],
] as const) {
  test(`the size ${text} is ${bytes} bytes`, (t) => t.is(parseBytes(text), bytes));
}

for (const text of ['', 'G', '-1', '1e9', '5%%', '101%', '10X', '0x10', '99999P', 'Infinity']) {
  test(`the size ${JSON.stringify(text)} is refused with the forms that work`, (t) => {
    t.throws(() => parseAmount(text), { message: /200G/ });
  });
}

test('a share is taken of the disk', (t) => {
  t.is(bytesOf(parseAmount('5%'), 1000), 50);
  t.is(bytesOf(parseAmount('100%'), 1000), 1000);
});

test('a duration without unit is in seconds', (t) => {
  t.is(parseDurationMs('540'), 540_000);
  t.is(parseDurationMs('250ms'), 250);
  t.is(parseDurationMs('10m'), 600_000);
});

for (const text of ['', '0', '-5', '10 years', '25d', '1e3']) {
  test(`the duration ${JSON.stringify(text)} is refused`, (t) => {
    t.throws(() => parseDurationMs(text), { message: /duration/ });
  });
}

test('bytes are shown with three digits or so', (t) => {
  t.is(formatBytes(0), '0 B');
  t.is(formatBytes(1023), '1023 B');
  t.is(formatBytes(1536), '1.5 KiB');
  t.is(formatBytes(3_449_800_000), '3.2 GiB');
  t.is(formatBytes(200 * 2 ** 30), '200 GiB');
});

test('times are shown with three digits or so', (t) => {
  for (const [milliseconds, words] of [
    [0.0854, '85 µs'],
    [0.9996, '1.0 ms'],
    [1.23, '1.2 ms'],
    [340.4, '340 ms'],
    [999.6, '1.0 s'],
    [12_340, '12.3 s'],
    [59_960, '1 min'],
    [250_000, '4 min 10 s'],
    [3_599_800, '1 h'],
    [12_000_000, '3 h 20 min'],
    [190_800_000, '2 d 5 h'],
  ] as const) {
    t.is(formatMilliseconds(milliseconds), words);
  }
});
