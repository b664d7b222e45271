import test from 'ava';
import fc from 'fast-check';
import { REMOVED, redactor, shownVariable } from '../../src/doctor/redact.js';

const plain = redactor({}, []);

for (const [what, text, secret] of [
  ['a token of the Hub', 'token hf_abcDEF123456 refused', 'abcDEF123456'],
  ['a token of an organisation', 'api_org_abcDEF123456', 'abcDEF123456'],
  ['a header', '{"authorization":"Bearer abc.def-ghi"}', 'abc.def-ghi'],
  ['a header of another kind', 'Proxy-Authorization: Basic dXNlcjpwYXNz', 'dXNlcjpwYXNz'],
  ['a cookie', 'cookie: session=s3cr3tvalue; path=/', 's3cr3tvalue'],
  ['user and password of an address', 'via http://someone:pass-word@proxy:3128/', 'pass-word'],
  ['a password with an "@" in it', 'via http://someone:pa@ss@proxy:3128/', 'pa@ss'],
  ['a signed address', 'GET https://cdn.example/x/y?Expires=1&Signature=aBcD~e_f&Key-Pair-Id=K1 403', 'aBcD~e_f'],
  ['the query of a bare path', '/x?X-Amz-Credential=AKfoo%2F2026&X-Amz-Signature=deadbeef99', 'deadbeef99'],
  ['a field of JSON', '{"password": "hunter2 and more"}', 'hunter2'],
  ['a setting', 'api_key=abcdef,next', 'abcdef'],
  ['a web token', 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl', 'c2lnbmF0dXJl'],
  ['a key of a cloud', 'AKIAIOSFODNN7EXAMPLE', 'IOSFODNN7EXAMPLE'],
  ['a private key', '-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----', 'MIIEow'],
] as const) {
  test(`${what} is taken out, without being known`, (t) => {
    const shown = plain(text);
    t.false(shown.includes(secret), shown);
    t.true(shown.includes(REMOVED));
  });
}

test('what is no secret stays', (t) => {
  for (const text of [
    'https://huggingface.co/datasets/wAI-org/tmax-image-pool/resolve/main/images/a__b__0a1b2c.sif',
    'HF_TOKEN, /root/.cache/huggingface/token',
    'images/hamishi740__swerl-tmax-v3__0a1b2c3d4e5f.sif EBADMSG: the sha256 is another',
    '{"commit":"0123456789abcdef0123456789abcdef01234567","mountpoint":"/tmax"}',
    'fusermount3 version: 3.14.0',
  ]) {
    t.is(plain(text), text);
  }
});

test('a known secret is taken out in every spelling, wherever it stands', (t) => {
  const secret = fc.string({ minLength: 4, maxLength: 30 }).filter((text) => text.trim() === text && text.length >= 4);
  const around = fc.string({ maxLength: 20 });
  fc.assert(
    fc.property(secret, around, around, (value, before, after) => {
      // What the removal itself writes could be a secret by chance.
      fc.pre(!REMOVED.includes(value) && !`${before}${after}`.includes(value));
      const redact = redactor({ MY_TOKEN: value }, []);
      for (const spelling of [
        value,
        encodeURIComponent(value),
        JSON.stringify(value).slice(1, -1),
        Buffer.from(value).toString('base64'),
      ]) {
        const shown = redact(`${before}\n${spelling}\n${after}`).split('\n');
        t.false(shown.includes(spelling), spelling);
      }
    }),
  );
});

test('the parts of a proxy’s address are known secrets, in whatever form it was written', (t) => {
  for (const value of [
    'http://user:p%40ss%2Fw@proxy:3128',
    'user:p@ss/w@proxy:3128',
    'http://user:p@ss/w@proxy:3128/',
  ]) {
    const redact = redactor({ HTTPS_PROXY: value }, []);
    for (const text of ['p@ss/w', 'p%40ss%2Fw', 'user:p@ss/w', Buffer.from('user:p@ss/w').toString('base64')]) {
      t.false(redact(`say ${text} .`).includes(text), `${value}: ${text}`);
    }
    t.is(
      redact(shownVariable('HTTPS_PROXY', value)).replace('http://', '').replace(/\/$/, ''),
      `${REMOVED}@proxy:3128`,
    );
  }
});

test('variables whose name says so are shown as set, and no more', (t) => {
  t.is(shownVariable('HF_TOKEN', 'x'), REMOVED);
  t.is(shownVariable('HF_TOKEN', ''), '');
  t.is(shownVariable('APPTAINER_DOCKER_PASSWORD', 'x'), REMOVED);
  t.is(shownVariable('SLURM_JWT', 'x'), REMOVED);
  t.is(shownVariable('HF_TOKEN_PATH', '/run/secrets/hf'), '/run/secrets/hf');
  t.is(shownVariable('HF_HUB_DISABLE_IMPLICIT_TOKEN', '1'), '1');
  t.is(shownVariable('NO_PROXY', 'a@b'), 'a@b');
  t.is(shownVariable('TMAXFS_CACHE_SIZE', '5%'), '5%');
});
