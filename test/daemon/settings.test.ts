import { resolve } from 'node:path';
import test from 'ava';
import { isYes, readSettings } from '../../src/daemon/settings.js';
import { sourceName } from '../../src/daemon/source-choices.js';
import { TmaxError } from '../../src/errors.js';
import { MOUNT_WORDS } from '../support/mount-words.js';

test('without any environment: the public Hub, the user’s cache folder, no proxy', (t) => {
  const settings = readSettings(MOUNT_WORDS, { HOME: '/home/u' });
  t.is(settings.endpoint, 'https://huggingface.co');
  t.is(settings.cacheDirectory, '/home/u/.cache/tmaxfs');
  t.deepEqual(settings.proxy, {});
  t.deepEqual(settings.token, { value: undefined, file: '/home/u/.cache/huggingface/token' });
});

test('the variables that users of the Hub set are honoured', (t) => {
  const settings = readSettings(MOUNT_WORDS, {
    HOME: '/home/u',
    XDG_CACHE_HOME: '/nvme/cache',
    HF_ENDPOINT: 'https://mirror.example/hf//',
    HF_HOME: '/shared/hf',
    HF_HUB_OFFLINE: 'YES',
    https_proxy: 'http://lower:3128',
    HTTPS_PROXY: 'http://upper:3128',
    NO_PROXY: 'localhost',
    SSL_CERT_FILE: '/etc/site.pem',
  });
  t.is(settings.endpoint, 'https://mirror.example/hf');
  t.is(settings.cacheDirectory, '/nvme/cache/tmaxfs');
  t.is(settings.token.file, '/shared/hf/token');
  t.true(settings.offline);
  t.deepEqual(settings.proxy, { httpsProxy: 'http://lower:3128', noProxy: 'localhost' });
  t.is(settings.caFile, '/etc/site.pem');
});

test('a token in the environment wins over its file; empty variables count as unset', (t) => {
  t.is(readSettings(MOUNT_WORDS, { HF_TOKEN: ' hf_a ', HUGGING_FACE_HUB_TOKEN: 'hf_b' }).token.value, 'hf_a');
  t.is(readSettings(MOUNT_WORDS, { HF_TOKEN: '', HUGGING_FACE_HUB_TOKEN: 'hf_b' }).token.value, 'hf_b');
  const implicit = readSettings(MOUNT_WORDS, { HF_HUB_DISABLE_IMPLICIT_TOKEN: '1', HF_TOKEN_PATH: '/t' }).token;
  t.deepEqual(implicit, { value: undefined, file: undefined });
});

for (const [name, wrong] of [
  ['repo', 'no-slash'],
  ['repo', '../etc/passwd'],
  ['repo', 'a/b/c'],
  ['revision', ''],
  ['revision', 'a b'],
  ['verify', 'maybe'],
  ['driver', 'nfs'],
  ['verifyThreads', '0'],
  ['verifyThreads', 'all'],
  ['arch', 'amd64'],
  ['scrub', 'sometimes'],
  ['logLevel', 'loud'],
  ['uid', '-1'],
  ['uid', 'root'],
  ['gid', '4294967295'],
  ['cacheSize', 'much'],
  ['openTimeout', 'never'],
  ['connections', '0'],
  ['connections', '65'],
  ['maxFetches', 'many'],
  ['connectTimeout', '0'],
  ['firstByteTimeout', '-1'],
  ['idleTimeout', '25d'],
  ['minSpeed', 'fast'],
  ['follow', 'sometimes'],
] as const) {
  test(`${name} "${wrong}" is a usage error that quotes it`, (t) => {
    const error = t.throws(() => readSettings({ ...MOUNT_WORDS, [name]: wrong }, {}));
    t.true(error?.message.includes(`"${wrong}"`), error?.message);
  });
}

test('sources are asked in the order in which they are named, each once; without any, the Hub', (t) => {
  const sources = (source?: string[]) => readSettings({ ...MOUNT_WORDS, source }, {}).sources;
  t.deepEqual(sources(), [{ kind: 'hub' }]);
  t.deepEqual(sources(['dir:/a', 'hub', 'dir:b']), [
    { kind: 'directory', folder: '/a' },
    { kind: 'hub' },
    { kind: 'directory', folder: resolve('b') },
  ]);
  t.deepEqual(sources(['http://a/{path}', 'hub']), [
    { kind: 'template', template: 'http://a/{path}' },
    { kind: 'hub' },
  ]);
  for (const [wrong, words] of [
    [['mirror'], /^--source takes "hub", .* or "dragonfly:\/\/host:port", not "mirror"$/],
    [['dir:'], /not "dir:"$/],
    [['hub', 'hub'], /^--source names one twice: hub, hub$/],
    [['dir:/a', 'dir:/a/'], /^--source names one twice/],
    [
      ['http://a/{path}?key=SECRET', 'http://a/{path}?key=OTHER'],
      /^--source names one twice: http:\/\/a\/\{path\}\?\.\.\., /,
    ],
    [['http://user:SECRET@a/{path}'], /^--source: this URL may hold no user and password$/],
    [['hub', 'http://user:SECRET@a/{path}'], /^--source \(2 of 2\): this URL may hold no user and password$/],
    [['hub', 'http://a/fixed?key=SECRET', 'dir:/a'], /^--source \(2 of 3\): "http:\/\/a\/fixed\?\.\.\." needs /],
    [['hub', 'mirror'], /^--source \(2 of 2\) takes "hub", /],
    [['oci://a/UPPER', 'hub'], /^--source \(1 of 2\): "UPPER" is no name for a repository of a registry/],
    [['user:SECRET@a/{path}'], /, not this$/],
    [['dragonfly://user:SECRET@a:1'], /, not this$/],
    [['dragonfly://'], /, not "dragonfly:\/\/"$/],
    [['dragonfly://a:b'], /, not "dragonfly:\/\/a:b"$/],
    [['dragonfly://a:1/http://b/fixed'], /^--source: "http:\/\/b\/fixed" needs \{sha256\} or \{path\}/],
    [['dragonfly://a:1', 'dragonfly://a:1/'], /^--source names one twice: dragonfly:\/\/a:1, dragonfly:\/\/a:1$/],
  ] as const) {
    const error = t.throws(() => sources([...wrong]), { message: words });
    t.false(error?.message.includes('SECRET'));
  }
});

test('a URL that would be that of several images is refused where several repositories are mounted', (t) => {
  const read = (pool: string[], source: string) =>
    readSettings({ ...MOUNT_WORDS, repo: undefined, pool, source: [source, 'hub'] }, {});
  const two = ['a=org/a', 'b=org/b'];
  for (const source of ['http://h/{path}?key=SECRET', 'dragonfly://p:1/http://h/{path}?key=SECRET']) {
    const error = t.throws(() => read(two, source), { instanceOf: TmaxError });
    t.is(error.errno, 'EINVAL');
    t.regex(error.message, /^--source ".*http:\/\/h\/\{path\}\?\.\.\." needs \{repo\}.* org\/a and org\/b /);
    t.notThrows(() => read(['a=org/a', 'b=org/a@v1'], source));
    t.notThrows(() => read(two, source.replace('{path}', '{repo}/{path}')));
  }
  t.notThrows(() => read(two, 'dragonfly://p:1'));
  t.notThrows(() => read(two, 'dir:/a'));
});

test('what is published somewhere is looked for there first, unless --source has a place for it', (t) => {
  const names = (publish: readonly string[], source?: readonly string[]) => {
    const settings = readSettings({ ...MOUNT_WORDS, publish, source }, {});
    return [settings.sources, settings.publish].map((choices) => choices.map(sourceName));
  };
  t.deepEqual(names([]), [['hub'], []]);
  t.deepEqual(names(['dir:/a', 'oci://r/p']), [
    ['dir:/a', 'oci://r/p', 'hub'],
    ['dir:/a', 'oci://r/p'],
  ]);
  t.deepEqual(names(['dir:/a/'], ['hub', 'dir:/a']), [['hub', 'dir:/a'], ['dir:/a']]);
  for (const [publish, words] of [
    [['hub'], /^--publish takes "dir:\/path" or "oci:\/\/host\/name", not "hub"$/],
    [['http://user:SECRET@a/{path}'], /^--publish takes .*, not this$/],
    [['oci://user:SECRET@a/p'], /^--publish: a registry is named by oci:\/\/host/],
    [['dir:/a', 'dir:/a/'], /^--publish names one twice/],
  ] as const) {
    const error = t.throws(() => names(publish), { message: words });
    t.false(error?.message.includes('SECRET'));
  }
  const { publishReserve, publishSizeBytes } = readSettings({ ...MOUNT_WORDS, publishSize: '2T' }, {});
  t.deepEqual([publishReserve, publishSizeBytes], [{ percent: 5 }, 2 * 2 ** 40]);
});

test('a scrub period may be longer than any timer can wait, and may be off', (t) => {
  t.is(readSettings({ ...MOUNT_WORDS, scrub: '60d' }, {}).scrubPeriodMs, 60 * 86_400_000);
  t.is(readSettings({ ...MOUNT_WORDS, scrub: 'off' }, {}).scrubPeriodMs, undefined);
});

for (const endpoint of [
  'file:///etc',
  'user:SECRET@host:1',
  'http://user:SECRET@host',
  'http://SECRET@host/x',
  'http://host/?token=SECRET',
]) {
  test(`an endpoint that is no mere web address is refused, and no secret repeated: ${endpoint}`, (t) => {
    const error = t.throws(() => readSettings(MOUNT_WORDS, { HF_ENDPOINT: endpoint }), { message: /^HF_ENDPOINT/ });
    t.false(error?.message.includes('SECRET'));
  });
}

test('a wrong amount is a usage error that names its option, or its variable', (t) => {
  for (const [name, wrong, start] of [
    ['cacheSize', 'lots', '--cache-size: "lots" is no size'],
    ['reserveFree', '200%', '--reserve-free: "200%" is a share above 100%'],
    ['openTimeout', 'never', '--open-timeout: "never" is no duration'],
    ['scrub', '-1', '--scrub: '],
    ['follow', 'x', '--follow: '],
    ['minSpeed', 'x', '--min-speed: '],
    ['connectTimeout', 'x', '--connect-timeout: '],
    ['idleTimeout', 'x', '--idle-timeout: '],
    ['cacheDir', '', '--cache-dir takes a path, not ""'],
  ] as const) {
    const error = t.throws(() => readSettings({ ...MOUNT_WORDS, [name]: wrong }, {}));
    t.true(error?.message.startsWith(start), error?.message);
  }
  t.throws(() => readSettings(MOUNT_WORDS, { HF_HUB_ETAG_TIMEOUT: 'soon' }), { message: /^HF_HUB_ETAG_TIMEOUT: / });
});

test('yes is 1, on, yes and true in any case; everything else is no', (t) => {
  t.deepEqual(['1', 'ON', ' yes', 'True'].map(isYes), [true, true, true, true]);
  t.deepEqual(['0', '', 'off', undefined, '2'].map(isYes), [false, false, false, false, false]);
});

test('deadlines are taken from the option, else from the variable of the Hub’s own client, else from the default', (t) => {
  t.like(readSettings(MOUNT_WORDS, {}), {
    connectTimeoutMs: 10_000,
    firstByteTimeoutMs: 30_000,
    idleTimeoutMs: 20_000,
  });
  const variables = { HF_HUB_DOWNLOAD_TIMEOUT: '7', HF_HUB_ETAG_TIMEOUT: '8' };
  t.like(readSettings(MOUNT_WORDS, variables), { firstByteTimeoutMs: 8000, idleTimeoutMs: 7000 });
  const words = { ...MOUNT_WORDS, firstByteTimeout: '1m', idleTimeout: '500ms' };
  t.like(readSettings(words, variables), { firstByteTimeoutMs: 60_000, idleTimeoutMs: 500 });
  t.throws(() => readSettings(MOUNT_WORDS, { HF_HUB_DOWNLOAD_TIMEOUT: 'soon' }), { message: /"soon"/ });
});

test('a branch is followed only where that is asked for, however rarely', (t) => {
  t.is(readSettings(MOUNT_WORDS, {}).followMs, undefined);
  t.is(readSettings({ ...MOUNT_WORDS, follow: 'off' }, {}).followMs, undefined);
  t.is(readSettings({ ...MOUNT_WORDS, follow: '10m' }, {}).followMs, 600_000);
  t.is(readSettings({ ...MOUNT_WORDS, follow: '60d' }, {}).followMs, 60 * 86_400_000);
});
