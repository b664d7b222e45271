import test from 'ava';
import { counted } from '../src/counted.js';

test('one thing is one, and of any other number there are several', (t) => {
  t.is(counted(1, 'image'), '1 image');
  t.is(counted(0, 'image'), '0 images');
  t.is(counted(16_203, 'image'), '16,203 images');
  t.is(counted(2, 'fetch', 'fetches'), '2 fetches');
});
