import test from 'ava';
import { redrawn } from '../../src/cli/status.js';

const SCREEN = 'one\ntwo\nthree\nfour\n';

test('a screen is drawn again as far as the window holds it, and what is left out is counted', (t) => {
  t.regex(redrawn(SCREEN, 24, 80), /one.*two.*three.*four/s);
  const small = redrawn(SCREEN, 4, 80);
  t.regex(small, /one.*two.*\(2 more lines in a larger window\)/s);
  t.notRegex(small, /three/);
  t.regex(redrawn(`${'x'.repeat(200)}\nlast\n`, 4, 80), /more lines in a larger window/);
});

test('a terminal that does not know its size shows the screen all the same', (t) => {
  t.is(redrawn(SCREEN, 0, 0), redrawn(SCREEN, 24, 80));
});
