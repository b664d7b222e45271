import test from 'ava';
import fc from 'fast-check';
import { TmaxError } from '../../src/errors.js';
import { parseUrlTemplate } from '../../src/sources/url-template.js';

const BLOB = {
  repository: 'org/pool',
  commit: 'c'.repeat(40),
  path: 'images/odd name #1?%.sif',
  sha256: `ab${'0'.repeat(62)}`,
  sizeBytes: 1,
};

for (const [template, url] of [
  ['http://a/{sha256}', `http://a/${BLOB.sha256}`],
  ['https://a:8/x/blobs/{sha256:2}/{sha256}', `https://a:8/x/blobs/ab/${BLOB.sha256}`],
  ['http://a/{path}', 'http://a/images/odd%20name%20%231%3F%25.sif'],
  [
    'http://a/datasets/{repo}/resolve/{commit}/{path}',
    `http://a/datasets/org/pool/resolve/${BLOB.commit}/images/odd%20name%20%231%3F%25.sif`,
  ],
  ['http://[::1]:8/get?digest={sha256}&key=SECRET', `http://[::1]:8/get?digest=${BLOB.sha256}&key=SECRET`],
] as const) {
  test(`${template} is where a blob lies`, (t) => {
    const { urlOf, shown } = parseUrlTemplate(template);
    t.is(urlOf(BLOB).href, url);
    t.is(shown, template.replace(/\?.*/, '?...'));
  });
}

for (const [template, separates] of [
  ['http://a/{sha256}', true],
  ['http://a/{repo}/{path}', true],
  ['http://a/{commit}/{path}', true],
  ['http://a/{path}?digest={sha256}', true],
  ['http://a/{path}', false],
  ['http://a/{sha256:2}/{path}', false],
] as const) {
  test(`${template} ${separates ? 'has' : 'does not have'} a URL of its own for each image of several repositories`, (t) => {
    const { separatesRepositories, urlOf } = parseUrlTemplate(template);
    t.is(separatesRepositories, separates);
    const other = { ...BLOB, repository: 'org/other', commit: 'd'.repeat(40), sha256: `ab${'1'.repeat(62)}` };
    t.is(urlOf(BLOB).href !== urlOf(other).href, separates);
  });
}

for (const [template, words] of [
  ['http://a', 'is no http(s)://host/path with {sha256} or {path} in it'],
  ['ftp://a/{path}', 'is no http(s)://host/path with {sha256} or {path} in it'],
  ['http://{path}/', 'is no http(s)://host/path with {sha256} or {path} in it'],
  ['http://a.{sha256:2}.b/{sha256}', 'is no http(s)://host/path with {sha256} or {path} in it'],
  ['http://user:SECRET@a/{path}?key=SECRET', 'may hold no user and password'],
  ['http://SECRET@a/{path}', 'may hold no user and password'],
  ['http://@a/{path}', 'may hold no user and password'],
  ['http://user:SE/CRET@a/{path}', 'is no http(s)://host/path with {sha256} or {path} in it'],
  ['http://a/{path}#SECRET', 'may hold no fragment ("#")'],
  ['http://a/fixed?key=SECRET#here', 'may hold no fragment ("#")'],
  ['http://a/{name}', 'has places for {sha256}, {sha256:2}, {path}, {repo}, {commit} alone'],
  ['http://a/{constructor}/{path}', 'has places for {sha256}, {sha256:2}, {path}, {repo}, {commit} alone'],
  ['http://a/{path', 'has places for {sha256}, {sha256:2}, {path}, {repo}, {commit} alone'],
  ['http://a/{{path}}', 'has places for {sha256}, {sha256:2}, {path}, {repo}, {commit} alone'],
  ['http://a/{sha256:2}', 'needs {sha256} or {path}: else all images are one URL'],
  ['http://a/fixed', 'needs {sha256} or {path}: else all images are one URL'],
] as const) {
  test(`${template} is refused, and no secret repeated`, (t) => {
    const error = t.throws(() => parseUrlTemplate(template), { instanceOf: TmaxError });
    t.is(error.errno, 'EINVAL');
    const shown = template.includes('@') ? 'this URL' : `"${template.replace(/[?#].*/, '?...')}"`;
    t.is(error.message, `${shown} ${words}`);
    t.false(error.message.includes('SECRET'));
  });
}

test('whatever a path is, its URL stays below the template, and gives the path back', (t) => {
  const { urlOf } = parseUrlTemplate('http://a/below/{path}');
  const segment = fc
    .string({ minLength: 1, unit: 'grapheme' })
    .filter((text) => !text.includes('/') && !/\p{Surrogate}/u.test(text));
  fc.assert(
    fc.property(fc.array(segment, { minLength: 1, maxLength: 4 }), (segments) => {
      const isStep = segments.some((one) => one === '.' || one === '..');
      if (isStep) {
        t.throws(() => urlOf({ ...BLOB, path: segments.join('/') }), { instanceOf: TmaxError });
        return;
      }
      const { origin, pathname, search } = urlOf({ ...BLOB, path: segments.join('/') });
      t.deepEqual([origin, search], ['http://a', '']);
      t.deepEqual(pathname.split('/').slice(2).map(decodeURIComponent), segments);
    }),
  );
});
