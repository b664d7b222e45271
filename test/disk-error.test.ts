import test from 'ava';
import { diskError } from '../src/disk-error.js';
import { TmaxError } from '../src/errors.js';

const system = (code: string) => Object.assign(new Error(`${code}: said the disk`), { code });

for (const [code, errno, advice] of [
  ['ENOSPC', 'ENOSPC', /free some room/],
  ['EDQUOT', 'ENOSPC', /quota is full/],
  ['EROFS', 'EIO', /read-only.*mount it for writing again/],
  ['EIO', 'EIO', /look at the disk/],
] as const) {
  test(`${code} of the cache’s disk ends an open in ${errno}, and says what to do`, (t) => {
    const error = diskError(system(code), "can't write x");
    t.is(error.errno, errno);
    t.is(error.source, 'cache');
    t.true(error.message.startsWith(`can't write x (${code}: said the disk); `), error.message);
    t.regex(error.message, advice);
  });
}

test('an error that has its words already keeps them', (t) => {
  const error = new TmaxError('EBADMSG', 'refused');
  t.is(diskError(error, 'x'), error);
});

test('a quota is known by its number, since Node has no name for it', (t) => {
  const thrown = Object.assign(new Error('Unknown system error -122: Unknown system error -122, write'), {
    code: 'Unknown system error -122',
    errno: -122,
  });
  const error = diskError(thrown, "can't write x");
  t.is(error.errno, 'ENOSPC');
  t.regex(error.message, /\(EDQUOT: /);
});
