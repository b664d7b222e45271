import test from 'ava';
import { watchdogMs } from '../../src/daemon/service-notification.js';
import { ServiceReport } from '../../src/daemon/service-report.js';

test('without a service manager nothing is told, and nothing goes wrong', (t) => {
  const report = new ServiceReport({});
  t.notThrows(() => {
    report.waitsFor('x');
    report.ready(() => t.fail('nobody wants to know') as never);
    report.stopping();
  });
});

test('a manager that can’t be reached ends nothing', (t) => {
  const report = new ServiceReport({ NOTIFY_SOCKET: '/nowhere/at/all' });
  t.notThrows(() => report.ready(() => 'y'));
  report.end();
});

test('the watchdog’s interval is for the process that is named', (t) => {
  t.is(watchdogMs({}, 7), undefined);
  t.is(watchdogMs({ WATCHDOG_USEC: '3000000' }, 7), 3000);
  t.is(watchdogMs({ WATCHDOG_USEC: '3000000', WATCHDOG_PID: '7' }, 7), 3000);
  t.is(watchdogMs({ WATCHDOG_USEC: '3000000', WATCHDOG_PID: '8' }, 7), undefined);
  for (const odd of ['', '0', '-1', 'x', '1e9']) t.is(watchdogMs({ WATCHDOG_USEC: odd }, 7), undefined, odd);
});
