import test from 'ava';
import { TransferRates } from '../../../src/daemon/metrics/transfer-rates.js';

const MIB = 2 ** 20;

function setUp() {
  const clock = { nowMs: 0 };
  const rates = new TransferRates(() => clock.nowMs);
  return { clock, rates, transfer: rates.begin('a') };
}

test('what was on disk before is neither counted nor a speed', (t) => {
  const { clock, rates, transfer } = setUp();
  t.is(transfer.progress(100 * MIB), 0);
  t.is(rates.bytesPerSecond('a'), undefined);
  clock.nowMs = 2000;
  t.is(transfer.progress(104 * MIB), 4 * MIB);
  t.is(rates.bytesPerSecond('a'), 2 * MIB);
  t.is(transfer.receivedBytes, 4 * MIB);
});

test('a speed is that of the last seconds, and falls to nothing where nothing comes', (t) => {
  const { clock, rates, transfer } = setUp();
  for (let second = 0; second <= 60; second += 1) {
    clock.nowMs = second * 1000;
    transfer.progress(second <= 30 ? second * 10 * MIB : 300 * MIB + (second - 30) * MIB);
  }
  t.is(rates.bytesPerSecond('a'), MIB);
  clock.nowMs = 120_000;
  t.is(rates.bytesPerSecond('a'), 0);
});

test('a transfer that begins anew counts what comes again', (t) => {
  const { transfer } = setUp();
  transfer.progress(0);
  t.is(transfer.progress(1000), 1000);
  t.is(transfer.progress(0), 0);
  t.is(transfer.progress(400), 400);
  t.is(transfer.receivedBytes, 1400);
});

test('a transfer that has ended has no speed, and takes none from its successor', (t) => {
  const { clock, rates, transfer } = setUp();
  const second = rates.begin('a');
  second.progress(0);
  clock.nowMs = 1000;
  second.progress(MIB);
  transfer.end();
  t.is(rates.bytesPerSecond('a'), MIB);
  second.end();
  t.is(rates.bytesPerSecond('a'), undefined);
});
