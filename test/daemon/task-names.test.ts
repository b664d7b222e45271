import test from 'ava';
import { isWithin, parseTaskName, variantsIn } from '../../src/daemon/task-names.js';

test('a task is named alone, in its folder, or by a path, with or without its suffix', (t) => {
  t.deepEqual(parseTaskName('x'), { folder: undefined, task: 'x' });
  t.deepEqual(parseTaskName('v/x.sif'), { folder: 'v', task: 'x' });
  t.deepEqual(parseTaskName('/tmax/one/v/x.sif'), { folder: '/tmax/one/v', task: 'x' });
});

test('a folder stands for the variant of its name, for those that end so, or for the one that it ends in', (t) => {
  const variants = ['one/v', 'two/v', 'v', 'one/deep/v', 'w'];
  const among = (folder: string | undefined) => variantsIn(variants, folder);
  t.deepEqual(among(undefined), variants);
  t.deepEqual(among('v'), ['v']);
  t.deepEqual(among('/tmax/one/v'), ['one/v'], 'the longest');
  t.deepEqual(among('elsewhere/v'), ['v']);
  t.deepEqual(among('deep/v'), ['one/deep/v'], 'more of the path says more');
  t.deepEqual(variantsIn(['one/v', 'two/v'], 'v'), ['one/v', 'two/v']);
  t.deepEqual(variantsIn(['one/v', 'two/w'], 'x/w'), []);
  t.deepEqual(among('nothing'), []);
});

test('what is chosen is a variant, or all below a folder', (t) => {
  t.true(isWithin('one/v', undefined) && isWithin('one/v', 'one/v') && isWithin('one/v', 'one'));
  t.false(isWithin('one/v', 'on') || isWithin('one', 'one/v') || isWithin('one/v', 'v'));
});
