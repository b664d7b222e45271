import { basename } from 'node:path';
import test from 'ava';
import { defaultLogFile } from '../../src/daemon/log-place.js';

const nameFor = (mountpoint: string) => basename(defaultLogFile(mountpoint, { HOME: '/home/u' }));

test('a log file is called as systemd calls the instance', (t) => {
  t.is(nameFor('/tmax'), 'tmax.log');
  t.is(nameFor('/a/b-c'), 'a-b\\x2dc.log');
  t.is(nameFor('/a-b/c'), 'a\\x2db-c.log');
  t.is(nameFor('/.hidden/x y'), '\\x2ehidden-x\\x20y.log');
  t.is(nameFor('/é'), '\\xc3\\xa9.log');
  t.is(nameFor('/'), '-.log');
});

test('the name of a long mount point fits into a folder, and stays its own', (t) => {
  const [first, second] = ['a', 'b'].map((end) => nameFor(`/${'x'.repeat(300)}/${end}`));
  t.not(first, second);
  t.true(Buffer.byteLength(first ?? '') < 230);
});
