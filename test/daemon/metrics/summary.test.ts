import test from 'ava';
import { AgedValue } from '../../../src/daemon/metrics/summary.js';

test('a value is made once for all who ask within its age, and anew after that', async (t) => {
  let made = 0;
  const value = new AgedValue(async () => {
    made += 1;
    return made;
  });
  t.deepEqual(await Promise.all([value.get(0), value.get(1), value.get(14_999)]), [1, 1, 1]);
  t.is(await value.get(15_000), 2);
});

test('a failure is told to who asked, and the next tries again', async (t) => {
  let fails = true;
  const value = new AgedValue(async () => {
    if (fails) throw new Error('no disk');
    return 'fine';
  });
  await t.throwsAsync(value.get(0), { message: 'no disk' });
  fails = false;
  t.is(await value.get(1), 'fine');
});
