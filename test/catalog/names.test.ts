import test from 'ava';
import fc from 'fast-check';
import { nameProblem, pathProblem, printable } from '../../src/catalog/names.js';

test('a plain task name and a plain path are accepted', (t) => {
  t.is(nameProblem('task_000002_a10917e5.sif'), undefined);
  t.is(pathProblem('images_b02/hamishi740__swerl-tmax-v3__876615a5428b.sif'), undefined);
});

for (const [name, words] of [
  ['', /empty/],
  ['.', /"\."/],
  ['..', /"\.\."/],
  ['a/b', /contains "\/"/],
  ['a\0b', /control character/],
  ['a\nb', /control character/],
  ['a\u007f', /control character/],
  ['é'.repeat(128), /255 bytes/],
  ['\ud800', /Unicode/],
] as const) {
  test(`the name ${JSON.stringify(name).slice(0, 20)} is refused`, (t) => {
    t.regex(nameProblem(name) ?? '', words);
  });
}

for (const path of [
  '/etc/passwd',
  '../x.sif',
  'images/../../x.sif',
  'images//x.sif',
  'images/',
  '',
  'images/./x',
  'a\0b',
  'x/'.repeat(600),
]) {
  test(`the path ${JSON.stringify(path).slice(0, 30)} is refused`, (t) => {
    t.not(pathProblem(path), undefined);
  });
}

test('a name that is accepted survives the way through the kernel: bytes without NUL and slash, at most 255', (t) => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (name) => {
      if (nameProblem(name) !== undefined) return;
      const bytes = Buffer.from(name, 'utf8');
      t.true(bytes.length > 0 && bytes.length <= 255 && !bytes.includes(0) && !bytes.includes(0x2f));
      t.is(bytes.toString('utf8'), name);
    }),
  );
});

test('whatever the name, its printable form is one short line', (t) => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 2000 }), (name) => {
      const shown = printable(name);
      t.false(/[\n\r\u001b]/.test(shown));
      t.true(shown.length < 600);
    }),
  );
});
