import test from 'ava';
import { Abandoned, CopyState } from '../../src/sources/copy-state.js';

test('what is abandoned never writes again, and ends at its next step', (t) => {
  const state = new CopyState();
  const thread = new CopyState(state.memory);
  let writes = 0;
  thread.step(5);
  thread.write(() => {
    writes += 1;
  });
  t.deepEqual([state.isStarted, state.copiedBytes], [true, 5]);
  t.true(state.abandon());
  t.throws(() => thread.write(() => (writes += 1)), { instanceOf: Abandoned });
  t.throws(() => thread.step(), { instanceOf: Abandoned });
  t.is(writes, 1);
});

test('who abandons in the middle of a write is told to wait for it', (t) => {
  const state = new CopyState();
  const thread = new CopyState(state.memory);
  thread.write(() => t.false(state.abandon()));
  t.true(state.abandon());
  const failing = new CopyState();
  t.throws(() =>
    failing.write(() => {
      throw new Error('disk');
    }),
  );
  t.true(failing.abandon(), 'a write that has failed is over');
});
