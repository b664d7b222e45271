import { fileURLToPath } from 'node:url';
import test from 'ava';
import { execa } from 'execa';

const ROUNDS = 60;

test('a thread may be ended at any moment, also while it loads native code', async (t) => {
  const script = fileURLToPath(new URL('./support/end-threads.js', import.meta.url));
  const { stdout } = await execa(process.execPath, [script, String(ROUNDS)]);
  t.is(stdout, String(4 * ROUNDS));
});
